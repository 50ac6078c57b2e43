"""Names in a question: a metric or a rank that does not exist is an error, not an empty answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from runwatch.cli.guesses import meant
from runwatch.cli.source import Source
from runwatch.errors import NotFound

MOST_NAMED: Final = 20
_PAGE: Final = 10_000


def key_of(head: Source, name: str) -> str:
    """What the API knows a run by.  A path has no place for a slash: `team/x` goes by its id."""
    if "/" not in name:
        return name
    runs = head.get("/runs", limit=_PAGE)["runs"]
    ids = [run["run"] for run in runs if run["name"] == name]
    if len(ids) == 1:
        return str(ids[0])
    if ids:
        few = ", ".join(ids[:MOST_NAMED])
        raise NotFound(f"{len(ids)} runs are called {name!r}: name one by its id: {few}")
    guess = meant(name, {run["name"] for run in runs}) or ";"
    raise NotFound(f"there is no run {name[:80]!r} in {head.name}{guess} `runwatch runs` lists all")


def check_metrics(head: Source, run: Mapping[str, Any], metrics: Sequence[str]) -> None:
    """`run` is the API's answer to `/runs/RUN`."""
    for metric in metrics:
        path = f"/runs/{run['run']}/series"
        if head.get(path, metric=metric, limit=1)["total"]:
            continue
        known = sorted({each["metric"] for each in head.get(path, limit=_PAGE)["series"]})
        few = ", ".join(known[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
        has = f"it has {few}" if known else "it has none"
        guess = meant(metric, known) or ";"
        raise NotFound(f"run {run['name']!r} has no metric {metric!r}{guess} {has}")


def check_ranks(head: Source, run: Mapping[str, Any], ranks: Sequence[int]) -> None:
    if not ranks:
        return
    known = {each["rank"] for each in head.get(f"/runs/{run['run']}/processes")["processes"]}
    if wrong := sorted(set(ranks) - known):
        from runwatch.views.diagnosis.progress import ranks_in_words

        has = f"it has {ranks_in_words(known)}" if known else "it has none"
        raise NotFound(f"run {run['name']!r} has no {ranks_in_words(wrong)}; {has}")
