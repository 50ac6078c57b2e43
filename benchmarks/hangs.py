"""How often the report of a hang names the right rank, and how soon.

    python benchmarks/hangs.py [--quick] [--each 20] [--seed 1000]

The trials of `tests/integration/test_hang_trials.py`: jobs of eight ranks (torch.distributed,
Gloo) on this machine, in which a rank drawn by lot goes wrong at a step drawn by lot.  A head with
its hang watch follows them, and a node's agent takes the stacks.  The stall threshold is the
trials' own, 1.5 s, where a head's is 10 s: it is subtracted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from functools import partial
from typing import Any

from command import run_one
from report import NO_BAR, Outcome, Table, at_least, at_most
from trial import HERE, Options, directory

BAR_SECONDS, BAR_RIGHT, SEED, WORLD = 5.0, 95.0, 1000, 8


def measure(options: Options, each: int | None = None, seed: int = SEED) -> Outcome:
    each = each or (2 if options.quick else 20)
    sys.path.insert(0, str(HERE.parent))
    from tests.integration.gloo_jobs import CAUSES, jobs
    from tests.integration.hang_trials import STALL_SECONDS, Ground

    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with directory() as place:
        ground = Ground(place / "ground")
        try:
            for trial in ground.trials(jobs(CAUSES, each, WORLD, seed)):
                print(trial.words, flush=True)
                late = trial.seconds - (0 if trial.job.cause == "killed" else STALL_SECONDS)
                found[trial.job.cause].append({"verdict": trial.verdict, "seconds": late})
        finally:
            ground.close()
    print()
    return Outcome([_table(found)], {"hangs": dict(found)})


def _table(found: dict[str, list[dict[str, Any]]]) -> Table:
    table = Table(
        f"Who is to blame: jobs of {WORLD} ranks, one goes wrong",
        ("cause", "trials", "right", "cannot tell", "wrong", "s beyond the threshold", "bar", ""),
    )
    for cause, trials in found.items():
        table.rows.append(_row(cause, trials))
    everyone = [trial for trials in found.values() for trial in trials]
    table.rows.append(_row("all", everyone))
    share = 100 * sum(t["verdict"] == "right" for t in everyone) / len(everyone)
    table.notes.append(
        f"{share:.0f} % named the right rank ({' '.join(at_least(share, BAR_RIGHT, '%'))}). "
        "Seconds are median (worst).  A killed rank takes the others down at once: there is no "
        "threshold to wait for."
    )
    return table


def _row(cause: str, trials: list[dict[str, Any]]) -> tuple[str, ...]:
    verdicts = [trial["verdict"] for trial in trials]
    told = [t["seconds"] for t in trials if t["verdict"] != "nothing"]
    wrong = sum(verdict.startswith("wrong") for verdict in verdicts)
    seconds = f"{statistics.median(told):.1f} ({max(told):.1f})" if told else "–"
    bar = at_most(max(told), BAR_SECONDS, "s") if told else NO_BAR
    unsure = sum(verdict in ("cannot tell", "nothing") for verdict in verdicts)
    right = str(verdicts.count("right"))
    return (cause, str(len(trials)), right, str(unsure), str(wrong), seconds, *bar)


def main() -> None:
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--each", type=int, help="trials of each cause (20; with --quick 2)")
    own.add_argument("--seed", type=int, default=SEED, help="of the first trial (%(default)s)")
    chosen = own.parse_known_args()[0]
    parser = argparse.ArgumentParser(description=__doc__, parents=[own])
    run_one(parser, None, partial(measure, each=chosen.each, seed=chosen.seed))


if __name__ == "__main__":
    main()
