"""What may be missing from the records of a simulated run."""

from __future__ import annotations

from random import Random
from typing import Literal

from runwatch.record import BEGIN, END
from tests.unit.views.goodput.rank import Form
from tests.unit.views.goodput.story import Edge, Notebook, Point, Record
from tests.unit.views.goodput.world import World, simulate

Loss = Literal["ends", "exits", "compilations", "paces"]
LOSSES: tuple[Loss, ...] = ("ends", "exits", "compilations", "paces")


def incomplete(seed: int, form: Form = "native", *losses: Loss) -> World:
    """A run of which something was not recorded: some of these, or any.

    ends: every tenth span has a beginning only; in a journal only if a step begins after it, since
    a span that is open when its process ends was cut short, and that is no loss.
    exits: of attempts that were followed by another, nobody saw one process end, or any of them.
    compilations: none is recorded.
    paces: steps vary by 40 %, and hangs end anywhere among them.
    """
    dice = Random(f"{form} {seed}")
    chosen = losses or tuple(loss for loss in LOSSES if dice.random() < 0.5)
    world = simulate(seed, form, hangs_and_jitter="paces" in chosen)
    for book in world.books:
        if "ends" in chosen:
            _lose_ends(book, dice)
        if "compilations" in chosen:
            book.records = [record for record in book.records if not _is_compilation(record)]
    if "exits" in chosen:
        _lose_exits(world, dice)
    return world


def _lose_ends(book: Notebook, dice: Random) -> None:
    last = max((at for at, record in enumerate(book.records) if _begins_a_step(record)), default=0)
    book.records = [
        record
        for at, record in enumerate(book.records)
        if not (_is_end(record, at < last) and dice.random() < 0.1)
    ]


def _begins_a_step(record: Record) -> bool:
    return isinstance(record, Edge) and record.name == "step" and record.edge == BEGIN


def _is_end(record: Record, a_step_follows: bool) -> bool:
    if isinstance(record, Edge):
        return a_step_follows and record.edge == END and record.name != "step"
    return (
        isinstance(record, Point)
        and record.metric.endswith("_end_time")
        and record.metric != "goodput.job_end_time"
    )


def _is_compilation(record: Record) -> bool:
    if isinstance(record, Point):
        return record.kind == "compile"
    return not isinstance(record, Edge) and record.body.get("name") == "compile"


def _lose_exits(world: World, dice: Random) -> None:
    last = max(book.attempt for book in world.books)
    for attempt in sorted(set(range(1, last))):
        members = [book for book in world.books if book.attempt == attempt]
        unseen = dice.choice(([], members, members, [dice.choice(members)]))
        silent = dice.random() < 0.5
        for book in unseen:
            _unseen(book, silent)


def _unseen(book: Notebook, silent: bool) -> None:
    """Nobody saw it end; its silence may have been noticed."""
    if silent:
        book.ended_ns, book.state, book.reason = book.last_ns, "lost", "silent"
    else:
        book.ended_ns, book.state, book.reason = None, "running", ""
