"""How frameworks tell us what they spend time on: one file each, one line each in `HOOKS`.

A hook is set when the program has imported its framework, before `init` or after (the keeper looks
once a second), and taken away by `finish`.  Nothing of a framework is imported from here.  What is
wrapped keeps its results, signature and exceptions; `$RUNWATCH_HOOKS=off` leaves everything alone.
`install.py` sets and removes hooks, `teller.py` is what they all use.
"""

from __future__ import annotations

from typing import Final

HOOKS: Final = (
    # The module that must have been imported, and the file here whose `install` knows it.
    ("torch", "checkpoint_torch"),
    ("torch.distributed.checkpoint", "checkpoint_dcp"),
    ("orbax.checkpoint", "checkpoint_orbax"),
    ("torch", "compile_torch"),
    ("jax", "compile_jax"),
)
