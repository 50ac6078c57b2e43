"""The live stream: server-sent events for one page.

`hello`   first, when nothing can be missed any more: fetch what you show now, then apply the rest
`run`     a run's summary (RunInfo) that changed
`points`  the newest points (LivePoints) of the run's series that moved, when one run is asked for;
          with `values=off` none is listed: a run may have ten thousand series, a page shows a few

Each carries an id.  A page that reconnects with the current one has missed nothing; with another
it is sent everything again, as if all had changed.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import msgspec
from starlette.concurrency import run_in_threadpool

from runwatch._version import __version__
from runwatch.errors import NotFound
from runwatch.head.http.guests import EVERYTHING, Sight
from runwatch.head.http.live import Live
from runwatch.head.http.shapes import described, latest_infos
from runwatch.head.http.types import LiveHello, LivePoints
from runwatch.head.reading import Card, Reading
from runwatch.head.settings import Pace
from runwatch.head.state.board import RunBoard
from runwatch.record import JournalId, RunId


class Cards:
    """All runs as of now, computed once for however many pages watch them."""

    def __init__(
        self,
        reading: Reading,
        live: Live,
        *,
        fresh_seconds: float,
        board: RunBoard | None = None,
    ) -> None:
        self._reading = reading
        self._live = live
        self.board = board or RunBoard(reading)
        self._fresh_ns = int(fresh_seconds * 1e9)
        self._lock = threading.Lock()
        self._cards: dict[RunId, Card] = {}
        self._version = -1
        self._computed_ns = 0

    def current(self) -> dict[RunId, Card]:
        with self._lock:
            now_ns, version = self._reading.clock.mono_ns(), self._live.version
            if version != self._version or now_ns - self._computed_ns >= self._fresh_ns:
                self._refresh()
                self._version, self._computed_ns = version, now_ns
            return self._cards

    def _refresh(self) -> None:
        summaries, _ = self.board.summaries()
        self._cards = {card.summary.run: card for card in self.board.cards(summaries)}


class Watcher:
    """What one page was told, and what is news to it.  Used by one thread at a time."""

    def __init__(
        self,
        reading: Reading,
        cards: Cards,
        run: RunId | None,
        *,
        values: bool = True,
        sight: Sight = EVERYTHING,
    ) -> None:
        self._reading = reading
        self._cards = cards
        self._run = run
        self._values = values
        self._sight = sight
        self._told: dict[RunId, Card] = {}
        self._told_ns: dict[int, int] = {}

    def news(self, moved: frozenset[JournalId]) -> list[tuple[str, msgspec.Struct]]:
        """Empty `moved` means that time has passed: only states can have changed."""
        if self._run is None:
            return self._runs(card for card in self._cards.current().values() if self._shows(card))
        card = self._cards.board.card(self._run)
        if not self._shows(card):  # it was moved to another project
            raise NotFound(f"there is no run {self._run!r}")
        found = self._runs([card])
        return found + (self._points(self._run) if moved else [])

    def _shows(self, card: Card) -> bool:
        return self._sight.shows(card.summary.run, card.summary.group)

    def _runs(self, cards: Iterable[Card]) -> list[tuple[str, msgspec.Struct]]:
        changed = [card for card in cards if self._is_news(card)]
        self._told |= {card.summary.run: card for card in changed}
        return [("run", described(self._cards.board, card)) for card in changed]

    def _is_news(self, card: Card) -> bool:
        told = self._told.get(card.summary.run)
        if told is card:
            return False
        if told is None:
            return True
        # That a run was heard of again is no news by itself.
        same = replace(told.summary, last_ns=card.summary.last_ns)
        return same != card.summary or told.headline != card.headline

    def _points(self, run: RunId) -> list[tuple[str, msgspec.Struct]]:
        rows = self._reading.store.series(run)
        latest = self._reading.latest(rows)
        newer = [
            (row, latest[row.series])
            for row in rows
            if row.series in latest
            and latest[row.series].time_ns > self._told_ns.get(row.series, 0)
        ]
        self._told_ns |= {row.series: point.time_ns for row, point in newer}
        if not newer:
            return []
        points = latest_infos(newer, self._reading.attempts(run)) if self._values else []
        return [("points", LivePoints(run=run, points=points))]


async def feed(
    reading: Reading,
    live: Live,
    cards: Cards,
    *,
    run: RunId | None,
    last_id: str,
    pace: Pace,
    values: bool = True,
    sight: Sight = EVERYTHING,
) -> AsyncIterator[bytes]:
    watcher = Watcher(reading, cards, run, values=values, sight=sight)
    seconds = pace.all_seconds if run is None else pace.run_seconds
    everything = frozenset([JournalId("")])
    with live.subscribe() as subscription:
        id = live.id
        known = await run_in_threadpool(watcher.news, everything)
        hello = LiveHello(version=__version__, run=run, time_ns=reading.clock.wall_ns())
        yield _message("hello", hello, id)
        for name, body in known if last_id not in ("", id) else ():
            yield _message(name, body, id)
        while not subscription.ended:
            moved = await subscription.wait(pace.keep_alive_seconds)
            if subscription.ended:
                return
            id = live.id
            try:
                news = await run_in_threadpool(watcher.news, moved)
            except NotFound:  # it was deleted: who follows it asks again, and is told
                return
            for name, body in news:
                yield _message(name, body, id)
            if not news:
                yield b": still here\n\n"
            await subscription.pause(seconds)


def _message(name: str, body: msgspec.Struct, id: str) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (
        id.encode(),
        name.encode(),
        msgspec.json.encode(body),
    )
