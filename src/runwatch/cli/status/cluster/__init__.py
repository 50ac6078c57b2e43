"""`runwatch status --cluster`: what is installed, which nodes and pods are left out, and why.

`asking.py` asks by kubectl and makes a `Told`; the other files make sections of one, and ask
nothing.  `told.py` holds what all of them read from objects, `wished.py` what labels ask for, and
`why.py` why a pod is not watched.  What nobody may look at is said; nothing is guessed of it.
"""

from __future__ import annotations

from runwatch.cli.status.cluster import installed, nodes, pods, webhook
from runwatch.cli.status.cluster.told import Told
from runwatch.cli.status.types import Section


def sections(told: Told) -> list[Section]:
    release = installed.release(told)
    if release.problems and not release.facts["releases"]:
        return [release]  # all else would say the same again
    parts = [installed.head, webhook.section, installed.operator, nodes.section, pods.section]
    return [release, *(part(told) for part in parts)]


def words(context: str | None, namespace: str | None) -> str:
    which = f"context {context}" if context else "kubectl's current context"
    return f"the cluster of {which}" + (f", pods of namespace {namespace}" if namespace else "")
