"""Import runs of other tools: TensorBoard logs, wandb's own files, MLflow stores, CSV.

What a path holds is found by content.  In a folder that is TensorBoard logs (a run for each folder
with event files), wandb runs, MLflow stores, logs of ml-goodput-measurement and buffers of gswarm.
Files are read if they are one of these, a CSV with a step or a time, what `runwatch export` wrote,
or what `gcloud logging read --format=json` says of mldiagnostics or goodput.

Importing again adds only what is new: each value is imported once, also if an import was cut short
or the log was copied elsewhere meanwhile.

example:
  runwatch import runs/
  runwatch import wandb/ --group old-runs
  runwatch import mlflow.db --dry-run
  runwatch import metrics.csv --run baseline
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from runwatch.cli import importing, source
from runwatch.cli.importing import Outcome, Target
from runwatch.cli.pictures import tables
from runwatch.cli.pictures.progress import progress
from runwatch.errors import RunwatchError, UsageError
from runwatch.imports.finding import WANTED, Found, Wanted, find
from runwatch.imports.planning import Known, Plan, Wish, check, missing, plan
from runwatch.imports.writing import Tally
from runwatch.terminal import shown

FEW: Final = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="+", type=Path, metavar="PATH", help="a file or a folder")
    source.arguments(parser)
    parser.add_argument("--as", dest="kind", choices=WANTED, help="look for this form only")
    parser.add_argument(
        "--run", dest="run_name", metavar="NAME",
        help="the run's name; of several runs, what stands before their names",
    )  # fmt: skip
    parser.add_argument("--group", metavar="NAME", help="put the runs into this group")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be imported")
    parser.add_argument(
        "--again", action="store_true",
        help="import from the beginning once more: for a store that was lost",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print a report as JSON")


def run(arguments: argparse.Namespace) -> int:
    found = _find(arguments.path, arguments.kind)
    to = importing.target(arguments)
    wish = Wish(to.root, to.head, arguments.run_name or "", arguments.group or "", arguments.again)
    plans = plan(found.sources, wish)
    known = to.known(arguments) if plans else Known()
    check(plans, known, to.name)
    outcomes = _bring(plans, to, arguments)
    lost = [words for each in plans if (words := missing(each, known))]
    others = [_other(kind, path, to, arguments) for kind, path in found.others]
    if arguments.json:
        tables.print_json(_report(outcomes, others, to, arguments))
    else:
        _tell(outcomes, to, arguments.dry_run)
    for words in lost:
        print(f"runwatch: {shown(words)}", file=sys.stderr)
    return 1 if any(outcome.error for outcome in outcomes) else 0


def _find(paths: Sequence[Path], wanted: Wanted | None) -> Found:
    found = Found()
    with progress("looking for runs"):
        for path in paths:
            here = find(path, wanted)
            found.sources += here.sources
            found.others += here.others
    return found


def _bring(plans: Sequence[Plan], to: Target, arguments: argparse.Namespace) -> list[Outcome]:
    outcomes: list[Outcome] = []
    total = sum(each.source.bytes for each in plans)
    with progress("reading" if arguments.dry_run else "importing", "bytes", total=total) as step:
        for each in plans:
            try:
                if arguments.dry_run:
                    outcomes.append(importing.foresee(each, step))
                else:
                    outcomes.append(importing.bring(each, to, step))
            except RunwatchError as error:
                if len(plans) == 1:
                    raise
                outcomes.append(Outcome(each, Tally(), error))
    return outcomes


# ── logs of the originals ──────────────────────────────────────────────────────────────────────


def _other(kind: Wanted, path: Path, to: Target, arguments: argparse.Namespace) -> dict[str, Any]:
    if kind == "goodput":
        return _goodput(path, to, arguments)
    from runwatch.cli import session_import

    given = argparse.Namespace(
        path=path, remove=False, dir=arguments.dir, head=to.head or None, json=arguments.json
    )
    return {"kind": "gswarm", "path": str(path), **session_import.bring(given, arguments.dry_run)}


def _goodput(path: Path, to: Target, arguments: argparse.Namespace) -> dict[str, Any]:
    from runwatch.cli.commands import goodput

    if to.head:
        raise UsageError(
            f"{path} is a goodput log, which is imported into a directory: name one with --dir; a "
            "head that serves the directory shows it"
        )
    jobs = goodput.import_log(path, to.root, dry_run=arguments.dry_run)
    if not arguments.json:
        for job in jobs:
            print(f"{job['name']}: {job['entries']:,} entries of a goodput log, {job['new']:,} new")
    return {"kind": "goodput", "path": str(path), "jobs": jobs}


# ── what is said ───────────────────────────────────────────────────────────────────────────────


def _state(outcome: Outcome, dry_run: bool) -> str:
    if outcome.error:
        return "failed"
    if outcome.tally.is_empty:
        return "nothing new"
    if outcome.plan.is_new:
        return "would be new" if dry_run else "new"
    return "would grow" if dry_run else "grown"


def _tell(outcomes: Sequence[Outcome], to: Target, dry_run: bool) -> None:
    if not outcomes:
        return
    drawn = tables.table(
        "run", "from", "points", "metrics", "texts", "lines", "state",
        right=("points", "metrics", "texts", "lines"),
    )  # fmt: skip
    for outcome in outcomes:
        tally = outcome.tally
        drawn.add_row(
            shown(outcome.plan.ledger.name),
            outcome.plan.source.kind,
            *(f"{each:,}" for each in (tally.points, tally.metrics, tally.texts, tally.lines)),
            _state(outcome, dry_run),
        )
    tables.console().print(drawn)
    _tell_rest(outcomes)
    points = sum(outcome.tally.points for outcome in outcomes)
    done = "would be imported" if dry_run else "imported"
    runs = "1 run" if len(outcomes) == 1 else f"{len(outcomes):,} runs"
    print(f"{points:,} {'point' if points == 1 else 'points'} of {runs} {done} into {to.name}")


def _tell_rest(outcomes: Sequence[Outcome]) -> None:
    left_out: Counter[str] = Counter()
    for outcome in outcomes:
        left_out += outcome.tally.left_out
        for note in outcome.plan.source.notes:
            print(f"note: {shown(note)}")
        if outcome.error:
            print(f"runwatch: {shown(str(outcome.error))}", file=sys.stderr)
    if left_out:
        parts = [f"{times:,} {what}" for what, times in left_out.most_common(FEW)]
        print(f"left out: {shown(', '.join(parts))}")


def _report(
    outcomes: Sequence[Outcome],
    others: Sequence[dict[str, Any]],
    to: Target,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    return {
        "into": to.name,
        "dry_run": arguments.dry_run,
        "runs": [_plain(outcome, arguments.dry_run) for outcome in outcomes],
        "others": list(others),
    }


def _plain(outcome: Outcome, dry_run: bool) -> dict[str, Any]:
    each, tally = outcome.plan, outcome.tally
    return {
        "run": each.run,
        "name": each.ledger.name,
        "group": each.ledger.group,
        "kind": each.source.kind,
        "path": str(each.source.path),
        "state": _state(outcome, dry_run),
        "points": tally.points,
        "metrics": tally.metrics,
        "texts": tally.texts,
        "lines": tally.lines,
        "settings": tally.settings,
        "first_ns": tally.first_ns,
        "last_ns": tally.last_ns,
        "left_out": dict(tally.left_out),
        "notes": list(each.source.notes),
        "error": str(outcome.error) if outcome.error else None,
    }
