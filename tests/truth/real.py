"""Real programs, and the account of each beside what it measured itself.

As a table: `python -m tests.truth.real [PROGRAM …]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns

from runwatch.compat.goodput.calculator.strict import JournalAccount
from runwatch.views.goodput.account import Goodput
from tests.integration.sdk_programs import program_environment

PROGRAMS = Path(__file__).parent / "programs"
HEADLINE = 0.02
SHARE, AT_LEAST_SECONDS = 0.02, 1.0
LONGEST_SECONDS = 300.0


@dataclass(frozen=True)
class Program:
    script: str
    steps: int
    short: int = 0
    """So many steps in a hurry; 0: it is not worth it."""
    more: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return " ".join((self.script, *self.more))


ALL = (
    Program("jax_sync", 250),
    Program("jax_read", 250, 80, ("10", "inside")),
    Program("jax_read", 250, 0, ("10", "outside")),
    Program("jax_read", 350, 0, ("100", "inside")),
    Program("jax_read", 350, 0, ("100", "outside")),
    Program("jax_log", 250, 80),
    Program("jax_loader", 250, 0, ("5", "10")),
    Program("jax_loader", 100, 40, ("100", "1")),
    Program("jax_loader", 100, 0, ("100", "10")),
    Program("jax_loader", 100, 0, ("100", "10", "logged")),
    Program("jax_accumulation", 200),
    Program("jax_buckets", 250),
    Program("jax_recompile", 250),
    Program("jax_recorder", 250),
    Program("torch_sync", 250),
    Program("torch_loader", 150),
    Program("torch_trainer", 200),
    Program("torch_hooked", 200, 0, ("1",)),
    Program("torch_hooked", 200, 50, ("4",)),
)
"""A loader's are milliseconds for a batch, and how often the loss is read.  That of torch_hooked is
how many batches a step has."""


@dataclass(frozen=True)
class Beside:
    """The account of a program, and the truth; in seconds."""

    wall: float
    account_wall: float
    truth: dict[str, float]
    spent: dict[str, float]
    inferred: float
    steps: int
    told: dict[str, float] = field(default_factory=dict)
    """What else the program wrote beside the truth."""

    @property
    def busy(self) -> float:
        return self.truth["productive"] / self.wall

    @property
    def goodput(self) -> float:
        return self.spent["productive"] / self.account_wall

    def off(self, name: str) -> float:
        return self.spent.get(name, 0.0) - self.truth.get(name, 0.0)

    @property
    def worst(self) -> tuple[str, float]:
        name = max(sorted({*self.truth, *self.spent}), key=lambda name: abs(self.off(name)))
        return name, self.off(name)

    def faults(self) -> Iterator[str]:
        within = max(SHARE * self.wall, AT_LEAST_SECONDS)
        unsure = max(HEADLINE, self.inferred / self.wall)
        if abs(self.goodput - self.busy) > unsure:
            yield f"headline {self.goodput:.1%}, the device was busy {self.busy:.1%}"
        name, off = self.worst
        if abs(off) > within:
            yield f"{name} is off by {off:+.2f} s of {self.wall:.1f} s"
        if abs(self.account_wall - self.wall) > within:
            yield f"the account is of {self.account_wall:.2f} s, not {self.wall:.2f} s"
        dropin = self.told.get("dropin", self.goodput)
        if abs(dropin - self.goodput) > 0.001:
            yield f"get_account() says {dropin:.1%}, the journal {self.goodput:.1%}"


def beside(program: Program, folder: Path, steps: int) -> Beside:
    """Run it, and hold its account against what it measured."""
    truth = folder / "truth.json"
    command = [sys.executable, str(PROGRAMS / f"{program.script}.py"), str(truth), str(steps)]
    done = subprocess.run(
        [*command, *program.more],
        env=program_environment(folder / "runwatch", JAX_PLATFORMS="cpu"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return _compared(_account(folder / "runwatch", program.script), json.loads(truth.read_text()))


def _account(directory: Path, name: str) -> Goodput:
    journals = JournalAccount(directory, name)
    try:
        goodput = journals.goodput(time_ns())
    finally:
        journals.close()
    assert goodput is not None
    return goodput


def _compared(goodput: Goodput, measured: dict[str, object]) -> Beside:
    account = goodput.account()
    wall, truth = measured.pop("wall"), measured.pop("spent")
    steps = measured.pop("steps")
    assert isinstance(wall, float) and isinstance(truth, dict) and isinstance(steps, int)
    return Beside(
        wall,
        account.total_ns / 1e9,
        truth,
        {name: ns / 1e9 for name, ns in account.spent_ns.items() if ns},
        goodput.inferred_ns / 1e9,
        steps,
        {name: value for name, value in measured.items() if isinstance(value, float)},
    )


def main() -> None:
    wanted = sys.argv[1:]
    print("program | step ms | wall s | truth % | account % | points | inferred s | worst class")
    for program in ALL:
        if wanted and program.script not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = beside(program, Path(folder), program.steps)
        name, off = found.worst
        step = found.truth["productive"] / found.steps * 1e3
        points = (found.goodput - found.busy) * 100
        print(
            f"{program.name} | {step:.0f} | {found.wall:.1f} | {found.busy:.1%} | "
            f"{found.goodput:.1%} | {points:+.2f} | {found.inferred:.2f} | {name} {off:+.2f} s",
            flush=True,
        )
        for fault in found.faults():
            print(f"    {fault}", flush=True)


if __name__ == "__main__":
    main()
