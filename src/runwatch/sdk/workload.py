"""In which pod this process runs, and of which workload the pod is a part.

The webhook (`k8s/`) writes it into the environment of watched pods.  POD_NAME and NODE_NAME are
names that people use for other things, too: they count only in a cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from runwatch.sdk.guard import tally
from runwatch.sdk.values.plain import text

LONGEST: Final = 253
"""No name in a cluster is longer."""
_VARIABLES: Final = {
    "pod": "POD_NAME",
    "pod_namespace": "POD_NAMESPACE",
    "pod_uid": "RUNWATCH_POD_UID",
    "container": "RUNWATCH_CONTAINER",
    "node": "NODE_NAME",
}


class Workload(NamedTuple):
    """What somebody labelled: a JobSet, a Job, …"""

    kind: str = ""
    name: str = ""
    uid: str = ""
    """One that is made again under its name has another."""

    @property
    def shown(self) -> str:
        return f"{self.kind}/{self.name}" if self.kind and self.name else self.name


def workload(environment: Mapping[str, str] = os.environ) -> Workload:
    """Empty if nothing says it."""
    told = environment.get("RUNWATCH_WORKLOAD", "").strip()
    if not told:
        return Workload()
    try:
        found = json.loads(told)
        if not isinstance(found, dict):
            raise ValueError("it is no object")
    except (ValueError, RecursionError) as error:
        tally.count("workload", f"cannot read RUNWATCH_WORKLOAD {told[:80]!r}: {error}")
        return Workload()
    return Workload(*(_name(found.get(field)) for field in Workload._fields))


def pod_facts(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The fields of `run_start` that are about the pod; empty outside a cluster."""
    facts: dict[str, str] = {}
    if environment.get("KUBERNETES_SERVICE_HOST") or environment.get("RUNWATCH_POD_UID"):
        facts = {field: _name(environment.get(name)) for field, name in _VARIABLES.items()}
    whose = workload(environment)
    facts |= {"workload": whose.shown, "workload_uid": whose.uid}
    return {field: value for field, value in facts.items() if value}


def _name(value: object) -> str:
    return text(value).strip()[:LONGEST] if isinstance(value, str) else ""
