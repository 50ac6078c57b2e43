"""The live stream: server-sent events for one page.

`hello`   comes first.  From here on no change is missed: fetch what you show, then apply the rest
`run`     the summary (RunInfo) of a run that changed
`points`  only when one run is asked for: the newest points (LivePoints) of its series that grew;
          with `values=off` the list is empty: a run may have ten thousand series, a page shows few

Each event carries an id.  A page that reconnects with the current id has missed nothing.  A page
that reconnects with another id is sent everything again, as if all had changed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from weakref import WeakKeyDictionary, WeakValueDictionary

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
from runwatch.record import RunId
from runwatch.rows import Latest, SeriesRow
from runwatch.views.series import AttemptOf


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Scene:
    """One run, or all runs, at one moment; made once for all pages."""

    version: int
    """The scene holds at least what was stored up to this version (`Live.version`)."""
    made_ns: int
    cards: Mapping[RunId, Card]
    rows: Sequence[SeriesRow] = ()
    """The series of the one run …"""
    latest: Mapping[int, Latest] = field(default_factory=dict)
    """… and their newest points."""
    attempts: AttemptOf = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changes: WeakKeyDictionary[Scene, list[Card]] = field(default_factory=WeakKeyDictionary)
    _points: WeakKeyDictionary[Scene, dict[bool, bytes | None]] = field(
        default_factory=WeakKeyDictionary
    )

    def changed(self, before: Scene) -> list[Card]:
        """The runs that changed since `before`."""
        with self._lock:
            known = self._changes.get(before)
            if known is None:
                pairs = ((before.cards.get(run), card) for run, card in self.cards.items())
                known = [card for sent, card in pairs if _is_news(sent, card)]
                self._changes[before] = known
            return known

    def points(self, run: RunId, before: Scene, *, values: bool) -> bytes | None:
        """A message with the points that are newer than in `before`; None if there are none."""
        with self._lock:
            known = self._points.setdefault(before, {})
            if values not in known:
                known[values] = self._newer(run, before, values)
            return known[values]

    def _newer(self, run: RunId, before: Scene, values: bool) -> bytes | None:
        newer = [
            (row, point)
            for row in self.rows
            if (point := self.latest.get(row.series)) is not None
            and ((sent := before.latest.get(row.series)) is None or point.time_ns > sent.time_ns)
        ]
        if not newer:
            return None
        points = latest_infos(newer, self.attempts) if values else []
        return msgspec.json.encode(LivePoints(run=run, points=points))


NOTHING: Final = Scene(-1, 0, {})
"""What a new page has seen."""


def _is_news(sent: Card | None, card: Card) -> bool:
    if sent is card:
        return False
    if sent is None:
        return True
    # A newer `last_ns` alone is no news.
    same = replace(sent.summary, last_ns=card.summary.last_ns)
    before, now = (sent.headline, sent.warnings), (card.headline, card.warnings)
    return same != card.summary or before != now


class Cards:
    """The newest scene of each watched run, and of all runs, with the messages about them.  Each is
    made once, however many pages watch."""

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
        self._stages: WeakValueDictionary[str, Stage] = WeakValueDictionary()
        self._saying = threading.Lock()
        self._infos: dict[RunId, tuple[Card, tuple[object, object], bytes]] = {}

    def stage(self, run: RunId | None) -> Stage:
        with self._lock:
            stage = self._stages.get(run or "")
            if stage is None:
                stage = self._stages[run or ""] = Stage(self, run)
            return stage

    def info(self, card: Card) -> bytes:
        """A run's summary, encoded for a message."""
        run = card.summary.run
        with self._saying:
            # These are not part of the card, and change without it.
            beside = self.board.total_steps(run), self.board.noted(run)
            held, held_beside, info = self._infos.get(run, (None, None, b""))
            if held is not card or held_beside != beside:
                info = msgspec.json.encode(described(self.board, card))
                self._infos[run] = card, beside, info
            return info

    def is_fresh(self, scene: Scene, version: int) -> bool:
        age_ns = self._reading.clock.mono_ns() - scene.made_ns
        return scene.version >= version and age_ns < self._fresh_ns

    def make(self, run: RunId | None) -> Scene:
        version, now_ns = self._live.version, self._reading.clock.mono_ns()
        if run is None:
            summaries, _ = self.board.summaries()
            cards = {card.summary.run: card for card in self.board.cards(summaries)}
            return Scene(version, now_ns, cards)
        card = self.board.card(run)
        rows = self._reading.store.series(run)
        latest, attempts = self._reading.latest(rows), self._reading.attempts(run)
        return Scene(version, now_ns, {run: card}, rows, latest, attempts)


class Stage:
    """One watched run, or all runs; it lives as long as some page watches."""

    def __init__(self, cards: Cards, run: RunId | None) -> None:
        self.cards = cards
        self.run = run
        self._lock = threading.Lock()
        self._scene = NOTHING

    def scene(self, version: int) -> Scene:
        """A scene of at least this version.  Callers wait while it is made, and share it."""
        with self._lock:
            if not self.cards.is_fresh(self._scene, version):
                self._scene = self.cards.make(self.run)
            return self._scene


class Watcher:
    """What one page has seen, and what is new to it.  Used by one thread at a time."""

    def __init__(self, stage: Stage, *, values: bool = True, sight: Sight = EVERYTHING) -> None:
        self._stage = stage
        self._values = values
        self._sight = sight
        self._seen = NOTHING

    def look(self, version: int) -> None:
        """Takes the present scene as seen: `news` tells only what changes after it."""
        self._seen = self._scene(version)

    def everything(self) -> list[tuple[str, bytes]]:
        """Messages for all that the page has seen, as if all had changed."""
        return self._messages(NOTHING, self._seen)

    def news(self, version: int) -> list[tuple[str, bytes]]:
        """Messages for all that changed since the last call, up to this version at least."""
        before, self._seen = self._seen, self._scene(version)
        return [] if before is self._seen else self._messages(before, self._seen)

    def _scene(self, version: int) -> Scene:
        scene, run = self._stage.scene(version), self._stage.run
        if run is not None and not self._shows(scene.cards[run]):  # it moved to another project
            raise NotFound(f"there is no run {run!r}")
        return scene

    def _messages(self, before: Scene, now: Scene) -> list[tuple[str, bytes]]:
        cards, run = self._stage.cards, self._stage.run
        shown = (card for card in now.changed(before) if self._shows(card))
        messages = [("run", cards.info(card)) for card in shown]
        if run is not None and (points := now.points(run, before, values=self._values)) is not None:
            messages.append(("points", points))
        return messages

    def _shows(self, card: Card) -> bool:
        return self._sight.shows(card.summary.run, card.summary.group)


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
    watcher = Watcher(cards.stage(run), values=values, sight=sight)
    seconds = pace.all_seconds if run is None else pace.run_seconds
    with live.subscribe() as subscription:
        id, version = live.id, live.version
        await run_in_threadpool(watcher.look, version)
        hello = LiveHello(version=__version__, run=run, time_ns=reading.clock.wall_ns())
        yield _message("hello", msgspec.json.encode(hello), id)
        if last_id not in ("", id):
            for name, body in await run_in_threadpool(watcher.everything):
                yield _message(name, body, id)
        while not subscription.ended:
            await subscription.wait(pace.keep_alive_seconds)
            if subscription.ended:
                return
            id, version = live.id, live.version
            try:
                news = await run_in_threadpool(watcher.news, version)
            except NotFound:  # the run was deleted; the page reconnects and gets a 404
                return
            for name, body in news:
                yield _message(name, body, id)
            if not news:
                yield b": still here\n\n"
            await subscription.pause(_until_next(seconds))


def _until_next(seconds: float) -> float:
    """Seconds to the next common tick: pages of one pace look together, and share one scene."""
    return seconds - asyncio.get_running_loop().time() % seconds if seconds else 0.0


def _message(name: str, body: bytes, id: str) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), name.encode(), body)
