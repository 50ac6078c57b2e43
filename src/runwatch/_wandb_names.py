"""Which names of wandb a program finds here that says `import runwatch as wandb`."""

from __future__ import annotations

from typing import Final

HOME: Final = "runwatch.sdk.wandb_like.calls"
OFFERED: Final = frozenset({
    "AlertLevel", "Artifact", "Audio", "Classes", "CommError", "Error", "Graph", "Histogram",
    "Html", "Image", "Molecule", "Object3D", "Plotly", "Settings", "Table", "UsageError", "Video",
    "alert", "define_metric", "ensure_configured", "join", "link_model", "log_artifact",
    "log_model", "login", "mark_preempting", "plot", "require", "restore", "save", "setup",
    "teardown", "termerror", "termlog", "termwarn", "unwatch", "use_artifact", "use_model", "util",
    "watch",
})  # fmt: skip

_FRAMEWORKS: Final = "`runwatch exec` and `runwatch.init(auto=True)` see what frameworks do and log"
_SWEEPS: Final = "runwatch runs no sweeps: start one run per setting, with the same group"
ABSENT: Final = {
    "Api": "ask a head at /api/v1, or use the command `runwatch export`",
    **dict.fromkeys(("agent", "controller", "sweep"), _SWEEPS),
    **dict.fromkeys(
        ("integration", "keras", "lightgbm", "sklearn", "tensorboard", "tensorflow", "xgboost"),
        _FRAMEWORKS,
    ),
}
"""What wandb has and we have not, with what to do instead."""


def why_absent(name: str) -> str:
    instead = f": {ABSENT[name]}" if name in ABSENT else ""
    return f"module 'runwatch' has no attribute {name!r}{instead}"
