"""How far an object reaches: to what runs in its own namespace.  Nobody captures a neighbour.

Objects in the operator's namespace, and in those that its settings name, reach everywhere: who may
write there looks after the cluster.
"""

from __future__ import annotations

from collections.abc import Collection

from runwatch.k8s.operator.asking import Refused
from runwatch.k8s.operator.objects import Ref
from runwatch.k8s.operator.settings import OperatorSettings


class Bounds:
    def __init__(self, own_namespace: str, settings: OperatorSettings) -> None:
        self._own = own_namespace
        self._wide = {own_namespace, *settings.wide_namespaces}

    def are_wide(self, ref: Ref) -> bool:
        return ref.namespace in self._wide

    def check(self, ref: Ref, what: str, namespaces: Collection[str]) -> None:
        """`namespaces`: all in which it runs.  Raises Refused, and does not say where else."""
        if not self.are_wide(ref) and set(namespaces) != {ref.namespace}:
            raise Refused(
                f"{what} does not run in namespace {ref.namespace} alone: make this object where "
                f"it runs, or in {self._own}, from where all may be captured "
                "(RUNWATCH_WIDE_NAMESPACES)"
            )
