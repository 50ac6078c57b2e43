"""What a command is called if nobody gave it a name: `torchrun … train.py` is "train"."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

_SCRIPTS: Final = (".py", ".sh", ".bash", ".pyz")
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
# These run another program, which gives its name to the run.
_LAUNCHERS: Final = frozenset(
    (
        "torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun", "ray",
        "env", "nice", "nohup", "time", "timeout", "stdbuf", "numactl", "taskset", "sudo", "uv",
        "poetry", "pdm", "conda", "xvfb-run", "ipython", "composer", "colossalai", "runwatch",
    )
)  # fmt: skip
_INTERACTIVE: Final = frozenset(
    (
        "less", "more", "most", "man", "vi", "vim", "nvim", "nano", "emacs", "top", "htop", "btop",
        "nvtop", "nvitop", "tmux", "screen", "ssh", "mosh", "gdb", "fish",
    )
)  # fmt: skip
_MODULES: Final = frozenset(
    ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
)
# Options of Python that take the next word.
_WITH_VALUE: Final = frozenset(("-W", "-X", "--check-hash-based-pycs"))


def name_of(command: Sequence[str]) -> str:
    """Never empty.  The script, else the module, else the program itself."""
    first = os.path.basename(command[0]) if command else ""
    if _PYTHON.fullmatch(first):
        return _python(command[1:]) or first
    if first in _SHELLS or first in _LAUNCHERS:
        return _script(command[1:]) or _module(command[1:]) or first
    return _bare(first) or "run"


def _python(words: Sequence[str]) -> str:
    rest = iter(range(len(words)))
    for at in rest:
        word = words[at]
        if word == "-m" and at + 1 < len(words):
            module = words[at + 1]
            if module in _MODULES:
                return _script(words[at + 2 :]) or _module(words[at + 2 :]) or module
            return module.removesuffix(".__main__")
        if word == "-c":
            return ""
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return _bare(word)
    return ""


def _script(words: Sequence[str]) -> str:
    """The first word that looks like a script."""
    return next((_bare(word) for word in words if word.endswith(_SCRIPTS)), "")


def _module(words: Sequence[str]) -> str:
    for at, word in enumerate(words[:-1]):
        if word in ("-m", "--module") and words[at + 1] not in _MODULES:
            return words[at + 1]
    return ""


def _bare(word: str) -> str:
    base = os.path.basename(word.rstrip("/"))
    return base.removesuffix(next((end for end in _SCRIPTS if base.endswith(end)), "")) or base


def needs_terminal(command: Sequence[str]) -> bool:
    """Whether the command is one that a person works in: it takes keys, and shells tell jobs what
    is in front, by way of the terminal that they write to.  Nobody needs a record of that."""
    first = os.path.basename(command[0])
    if first in _SHELLS:
        return all(word.startswith("-") and word != "-c" for word in command[1:])
    return first in _INTERACTIVE
