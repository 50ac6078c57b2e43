"""Every label, annotation and kind of ours that a cluster sees.  All of them are contracts."""

from __future__ import annotations

from typing import Final

# ── labels ────────────────────────────────────────────────────────────────────────────────────

WATCH: Final = "runwatch.dev/watch"
"""`true` on a namespace, a workload or a pod: it is watched.  `false`: it is not.  The nearest to
the pod decides."""
WATCH_ORIGINAL: Final = "managed-mldiagnostics-gke"
"""The same, as google-cloud-mldiagnostics has it."""
EXEMPT: Final = "runwatch.dev/exempt"
EXEMPT_ORIGINAL: Final = "diagon-webhook-exempt"
"""`true` on a namespace: the webhook is not asked about its pods."""
WATCHED: Final = "runwatch.dev/watched"
"""`true`: the webhook was here.  The operator watches the pods that have it."""

OURS: Final = ("app.kubernetes.io/part-of", "runwatch")
"""On our own pods: the webhook leaves them alone."""

# ── annotations: on a pod, its workload or its namespace; the nearest to the pod decides ──────────

MODE: Final = "runwatch.dev/mode"
"""`node`: records go to the node's directory, where the node's agent finds them.  `sidecar`: the
agent is in the pod.  `none`: the pod is told who it is, and no more."""
EXEC: Final = "runwatch.dev/exec"
"""`true`: its Python programs are watched though they do not know us; each container's command is
begun by a shell of its image.  `pythonpath`: the same by the variable PYTHONPATH alone."""
CONTAINERS: Final = "runwatch.dev/containers"
"""Names with commas: which containers `exec` is for."""
NAME: Final = "runwatch.dev/name"
GROUP: Final = "runwatch.dev/group"
USER: Final = "runwatch.dev/user"
"""The number of the user as which the program runs, where the pod does not say it."""

# ── annotations that the webhook writes ───────────────────────────────────────────────────────

INJECTED: Final = "runwatch.dev/injected"
"""What was put in: `v1 node`, `v1 sidecar exec`."""
WORKLOAD: Final = "runwatch.dev/workload"
"""JSON of the workload that the pod is of: apiVersion, kind, name, uid, created, plural."""

# ── kinds ─────────────────────────────────────────────────────────────────────────────────────

GROUP_NAME: Final = "runwatch.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP_NAME}/{VERSION}"
CAPTURES: Final = "captures"
RUNS: Final = "runs"
CONNECTIONS_GROUP: Final = "diagon.gke.io"
CONNECTIONS: Final = "mldiagnosticsconnections"
"""Of google-cloud-mldiagnostics."""

LEASE: Final = "runwatch-operator"
"""Of several operators, the one that holds it works."""
CAPTURE: Final = "runwatch.dev/capture"
"""JSON, which the operator writes on an MLDiagnosticsConnection first: how it captures."""

FIELD_MANAGER: Final = "runwatch"
