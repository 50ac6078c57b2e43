"""How we learn what frameworks spend time on: one file each, one line each in `HOOKS`.

A hook is set when the program has imported its framework, before `init` or after (the keeper looks
once a second), and removed by `finish`.  Nothing of a framework is imported here.  A wrapped
function keeps its results, signature and exceptions; `$RUNWATCH_HOOKS=off` leaves everything alone.
`install.py` sets and removes hooks; all of them use `teller.py`.
"""

from __future__ import annotations

from typing import Final

HOOKS: Final = (
    # The module that must have been imported, and the file here with its `install`.
    ("torch", "checkpoint_torch"),
    ("torch.distributed.checkpoint", "checkpoint_dcp"),
    ("orbax.checkpoint", "checkpoint_orbax"),
    ("torch", "compile_torch"),
    ("jax", "compile_jax"),
)
