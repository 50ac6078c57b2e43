"""Reviews as an API server sends them, and pods as it stores them after a webhook's answer."""

from __future__ import annotations

import base64
import copy
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jsonpatch
import kubernetes_validate
import yaml

from runwatch.k8s.inject import Injection, inject
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.workloads import Chain, Link
from tests.cluster import objects

Thing = dict[str, Any]
REVIEWS: Final = Path(__file__).parents[2] / "fixtures/admission"
HEAD: Final = "http://runwatch-head.runwatch:8090"
IMAGE: Final = "registry.example/runwatch:1"
SETTINGS: Final = WebhookSettings(
    head=HEAD, image=IMAGE, cluster="projects/p/locations/l/clusters/c"
)
SIX_O_CLOCK_NS: Final = 1_795_068_000 * 10**9
KUBERNETES: Final = ("1.29", "1.34")
"""The oldest that has sidecars, and a new one."""
JOB: Final = Chain([Link("batch/v1", "Job", "nightly", "u-1", "2026-11-19T06:00:00Z", "jobs")])


def recorded(name: str) -> tuple[Thing, list[Thing]]:
    """The review and the owners of its pod."""
    found = copy.deepcopy(_read(REVIEWS / f"{name}.yaml"))
    return found["review"], found["owners"]


@functools.cache
def _read(path: Path) -> Thing:
    found: Thing = yaml.safe_load(path.read_text())
    return found


def stored(pod: Thing, answer: Mapping[str, Any]) -> Thing:
    """As an API server stores it."""
    response = answer["response"]
    assert response["allowed"] is True
    if "patch" not in response:
        return copy.deepcopy(pod)
    assert response["patchType"] == "JSONPatch"
    steps = json.loads(base64.b64decode(response["patch"], validate=True))
    changed: Thing = jsonpatch.JsonPatch(steps).apply(pod)
    return changed


def injected(
    pod: Thing,
    *,
    chain: Chain = JOB,
    namespace: Thing | None = None,
    settings: WebhookSettings = SETTINGS,
    has_sidecars: bool = True,
) -> Injection:
    """With a patch that makes the pod what it is said to be, and done again changes nothing."""

    def once(thing: Thing) -> Injection:
        return inject(
            thing,
            chain=chain,
            namespace=namespace or {},
            name="team",
            settings=settings,
            has_sidecars=has_sidecars,
            now_ns=SIX_O_CLOCK_NS,
        )

    before = copy.deepcopy(pod)
    done = once(pod)
    assert pod == before
    assert jsonpatch.JsonPatch(list(done.patch)).apply(pod) == done.pod
    assert list(once(copy.deepcopy(dict(done.pod))).patch) == []
    return done


def noted(spec: Thing | None = None, **notes: str) -> Thing:
    """A pod with annotations of ours: `mode="sidecar"`."""
    ours = {f"runwatch.dev/{name}": said for name, said in notes.items()}
    return objects.pod(spec=spec, notes=ours)


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Those with a value."""
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def is_valid(pod: Mapping[str, Any], *versions: str) -> None:
    """By the schemas of these versions of Kubernetes."""
    for version in versions or KUBERNETES[-1:]:
        kubernetes_validate.validate(dict(pod), version, strict=True)
