"""Print how the account does in each family: `python -m tests.truth [--markdown] [FAMILY …]`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from tests.truth.checks import Compared, compared
from tests.truth.families import gather
from tests.truth.judging import explained
from tests.truth.passing import SECOND


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.truth", description=__doc__)
    parser.add_argument("families", nargs="*", help="beginnings of names; all if none is given")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--explain", action="store_true", help="both accounts, class by class")
    options = parser.parse_args()
    begin = tuple(options.families) or ("",)
    head = ("family", "truth %", "reported %", "worst class", "off s", "inferred s", "result")
    line = "| {:<38} | {:>7} | {:>10} | {:<24} | {:>8} | {:>10} | {} |"
    if not options.markdown:
        line = line.replace("|", "").strip()
    print(line.format(*head))
    if options.markdown:
        print("|---|--:|--:|---|--:|--:|---|")
    failed = 0
    for family in gather().values():
        if family.name.startswith(begin):
            for seed in range(options.seeds):
                found = compared(family, seed)
                failed += any(found.faults())
                print(line.format(*_row(found)))
                if options.explain:
                    _explain(found)
    print(f"\n{failed} failed")
    print("a: headline, b: a class, c: off by more than inferred, d: sum, e: who was awaited")
    return bool(failed)


def _row(found: Compared) -> tuple[str, ...]:
    name, off = found.worst
    faults = " ".join(fault[1] for fault in found.faults())
    missing = " (evidence missing)" if found.family.evidence_missing else ""
    return (
        found.family.name,
        f"{found.history.truth.goodput * 100:.1f}",
        f"{found.goodput * 100:.1f}",
        name,
        f"{off / SECOND:+.1f}",
        f"{found.inferred_ns / SECOND:.1f}",
        (f"FAIL {faults}" if faults else "pass") + missing,
    )


def _explain(found: Compared) -> None:
    truth = found.history.truth.spent_ns
    for name in sorted(found.classes):
        true, said = truth.get(name, 0) / SECOND, found.spent_ns.get(name, 0) / SECOND
        print(f"    {name:<26} true {true:>10.2f}  reported {said:>10.2f}")
    for fault in found.faults():
        print(f"    ! {fault}")
    print(explained(found.history.truth, SECOND // 5))


if __name__ == "__main__":
    sys.exit(main())
