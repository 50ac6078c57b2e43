"""From an event's name: which kind of work it is, and a shorter name to show."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from typing import Final


class Work(IntEnum):
    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    """Between host and device; the device's multiprocessors are idle meanwhile."""
    HOST = 3
    INPUT = 4
    """Waiting for the next batch."""
    NONE = 5
    """Frames and annotations, which only contain work; and waiting."""


COLLECTIVE: Final = re.compile(
    r"^(?:nccl(?!::group)|rccl|oneccl|gloo:|c10d::|mpi:|all[-_]?reduce|all[-_]?gather|all[-_]?to[-_]?all"
    r"|reduce[-_]?scatter|collective[-_]?(?:permute|broadcast)|ragged[-_]all[-_]to[-_]all"
    r"|send(?:-done)?(?:\.\d+)?$|recv(?:-done)?(?:\.\d+)?$)"
    r"|nccl(?:Dev)?Kernel|all_?reduce_(?:one|two)_?shot|allreduce_fusion",
    re.IGNORECASE,
)
_INPUT: Final = re.compile(
    r"^enumerate\(DataLoader\)#|^IteratorGetNext|^(?:runwatch[./:# ])?data_wait$|^infeed\b"
)
_WAITING: Final = re.compile(
    r"Await\b|\bwait\b|WaitFor|BlockUntil|BlockHost|[Ss]ynchronize(?:_v\d+\w*)?$"
    r"|^end: |ThreadpoolListener::"
)
_STEP: Final = re.compile(r"^(?:ProfilerStep|runwatch[./:]step|step)[#: ](\d{1,18})$")
_MANGLED: Final = re.compile(r"^_ZN?K?(?=\d)")
_LONGEST: Final = 160


_LAUNCH: Final = re.compile(r"^(?:cuda|hip|cu|hipModule|cudaGraph|hipGraph|cuGraph)Launch")
# Lines of a device's plane that are derived from others, or show no work.
_DERIVED: Final = re.compile(
    r"^(?:Steps|XLA Modules|XLA TraceMe|Framework (?:Ops|Name Scope)|TensorFlow (?:Ops|Name Scope)"
    r"|Source code|Async XLA Ops|Launch Stats|Counters|#.*|Sparse ?Core.*)$",
    re.IGNORECASE,
)


def is_launch(name: str) -> bool:
    """Whether the call starts a kernel."""
    return _LAUNCH.match(name) is not None


def device_lines(names: Iterable[str]) -> frozenset[str]:
    """The lines of a device whose events are its work, so that no work counts twice."""
    listed = frozenset(names)
    if "XLA Ops" in listed and not any(name.startswith("Stream") for name in listed):
        return frozenset(("XLA Ops",))
    return frozenset(name for name in listed if name != "XLA Ops" and not _DERIVED.match(name))


def is_collective(name: str) -> bool:
    return COLLECTIVE.search(name) is not None


def step_number(name: str) -> int | None:
    match = _STEP.match(name)
    return int(match[1]) if match else None


def is_input(name: str) -> bool:
    return _INPUT.search(name) is not None


def device_work(name: str, *, is_copy: bool = False) -> Work:
    if is_copy or name.startswith(("Memcpy", "memcpy", "MemcpyH2D", "MemcpyD2H")):
        return Work.COMPUTE if _stays_on_device(name) else Work.COPY
    if is_input(name):
        return Work.INPUT
    return Work.COMMUNICATION if is_collective(name) else Work.COMPUTE


def _stays_on_device(name: str) -> bool:
    return "DtoD" in name or "D2D" in name


def host_work(name: str) -> Work:
    if is_input(name):
        return Work.INPUT
    return Work.NONE if _WAITING.search(name) or name.startswith("$") else Work.HOST


def kernel_name(name: str) -> str:
    """Without return type, arguments and nested template arguments."""
    plain = _demangle(name) if _MANGLED.match(name) else name.removeprefix("void ")
    return shorten(_without_arguments(plain) if "<" in plain or "(" in plain else plain)


def shorten(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _demangle(name: str) -> str:
    """Namespaces and function of an Itanium name, without template arguments."""
    position = _MANGLED.match(name).end()  # type: ignore[union-attr]
    parts: list[str] = []
    while digits := re.compile(r"\d{1,4}").match(name, position):
        begin = digits.end()
        position = begin + int(digits[0])
        parts.append(name[begin:position])
    words = [part for part in parts if part and not part.startswith("_GLOBAL__")]
    return "::".join(words) or name


def _without_arguments(name: str) -> str:
    """`f<a, b<c>>(int)` -> `f<a, b<…>>`: at most one level of template, no argument list."""
    kept: list[str] = []
    depth = 0
    hidden = name.replace("(anonymous namespace)", "{anonymous}").replace("> >", ">>")
    for place, letter in enumerate(hidden):
        if letter == "(" and depth == 0 and place and hidden[place - 1] != " ":
            break
        if letter == ">" and depth:
            depth -= 1
            if depth == 1:
                kept.append("…")
        if depth < 2:
            kept.append(letter)
        if letter == "<":
            depth += 1
    return "".join(kept)
