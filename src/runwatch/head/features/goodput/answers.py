"""A run's account, and its log entries, as API shapes."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, Final

from runwatch.buckets import LOWEST
from runwatch.entries import LOGGER, entry_of_point
from runwatch.errors import UsageError
from runwatch.head.features.goodput.figures import figures, is_untold
from runwatch.head.features.goodput.types import (
    AttemptSteps,
    BucketInfo,
    ClassInfo,
    ClassList,
    EntryList,
    ExplainedInfo,
    GoodputInfo,
    IntervalsInfo,
    RankInfo,
    SpentInfo,
)
from runwatch.head.http.parameters import Given, shortened
from runwatch.head.http.shapes import disruption_infos
from runwatch.head.http.types import plain
from runwatch.head.reading import Reading
from runwatch.head.state.accounts.accounts import Accounts
from runwatch.record import Batch, JournalId, RunId, RunScope, Series
from runwatch.record.life import GoodputEntry
from runwatch.store.asking import look
from runwatch.store.store import Wanted
from runwatch.views.goodput.account import (
    Account,
    AttemptAccount,
    Goodput,
    Range,
    RankShare,
    mean_time_between_failures_ns,
    mean_time_to_recovery_ns,
    normalised,
)
from runwatch.views.goodput.classes import Spent
from runwatch.views.goodput.explaining import explain
from runwatch.views.goodput.facts import ENTRY_PREFIX
from runwatch.views.goodput.figures import EXCLUDED, PARTS
from runwatch.views.goodput.looks import LOOKS
from runwatch.views.runs import runs_of
from runwatch.views.times import to_the_second
from runwatch.views.warnings import of_steps

# ── the account ────────────────────────────────────────────────────────────────────────────────


def account(reading: Reading, accounts: Accounts, given: Given) -> GoodputInfo:
    run = reading.run(given["run"])
    exclude = [_range(text) for text in given["exclude"]]
    since, until = given["since"], given["until"]
    if since is not None and until is not None and since > until:
        raise UsageError(f"since={since} is after until={until}; the window is from since to until")
    with accounts.of(run) as goodput:
        if goodput is None:
            return _nothing(reading, run)
        _check_window(goodput, since, until)
        found = goodput.account(since, until, exclude=exclude)
        info = _info(run, goodput, found)
        info.figures = figures(reading, run, goodput, found, exclude, given)
        _remark(info, reading, run, goodput)
        if given["buckets"]:
            parts = _parts(goodput, found, exclude, given["buckets"])
            info.over_time = [_bucket(part) for part in parts if part.total_ns]
        if given["intervals"]:
            info.intervals = _intervals(goodput, found, exclude, given["intervals"])
        return info


def _remark(info: GoodputInfo, reading: Reading, run: RunId, goodput: Goodput) -> None:
    """Say why there are no steps.  Of an imported curve, goodput is unknown and not zero."""
    if goodput.steps or goodput.ideal_step_ns is not None:
        return
    (summary,) = runs_of(reading.processes(run), {})
    info.remark = next((plain(warning.text) for warning in of_steps(summary)), "")
    if is_untold(summary, goodput) and info.figures is not None:
        info.goodput = info.figures.ettr = info.figures.runtime_goodput = None
        info.figures.overall_goodput, info.figures.unknown = None, list(PARTS)


def explained(reading: Reading, accounts: Accounts, given: Given) -> ExplainedInfo:
    run, time_ns = reading.run(given["run"]), given["time"]
    with accounts.of(run) as goodput:
        found = None if goodput is None else explain(goodput, time_ns)
        if goodput is None or found is None:
            lasts = "has not begun" if goodput is None else _lasts(goodput)
            raise UsageError(f"time={time_ns} is not a time of the run: it {lasts}")
        return ExplainedInfo(
            run=run,
            time_ns=time_ns,
            name=plain(found.name),
            start_ns=found.start_ns,
            end_ns=found.end_ns,
            attempt=found.attempt,
            step=found.step,
            why=[plain(sentence) for sentence in found.why],
        )


def _lasts(goodput: Goodput) -> str:
    first, last = goodput.start_ns, goodput.end_ns
    return f"is from {to_the_second(first)} to {to_the_second(last)} (time={first} to {last})"


def _range(text: str) -> Range:
    start, end = map(int, text.split("/"))
    if start > end:
        raise UsageError(f"exclude={text} ends before it begins; give START/END")
    return start, end


def _check_window(goodput: Goodput, since: int | None, until: int | None) -> None:
    first, last = goodput.start_ns, goodput.end_ns
    if (since is not None and since > last) or (until is not None and until < first):
        raise UsageError(
            f"nothing of the run lies in this window: it is from {to_the_second(first)} "
            f"to {to_the_second(last)} (since={first}, until={last})"
        )


def _nothing(reading: Reading, run: RunId) -> GoodputInfo:
    """The run starts in the future by the head's clock: the run's clock is ahead."""
    now_ns = reading.clock.wall_ns()
    return GoodputInfo(
        run=run,
        live=True,
        run_start_ns=now_ns,
        run_end_ns=now_ns,
        start_ns=now_ns,
        end_ns=now_ns,
        spent=[SpentInfo(name=spent.name.lower(), ns=0, share=0.0) for spent in Spent],
    )


def _info(run: RunId, goodput: Goodput, account: Account) -> GoodputInfo:
    counted_ns = account.counted_ns
    return GoodputInfo(
        run=run,
        live=goodput.live,
        run_start_ns=goodput.start_ns,
        run_end_ns=goodput.end_ns,
        start_ns=account.start_ns,
        end_ns=account.end_ns,
        total_ns=account.total_ns,
        counted_ns=counted_ns,
        goodput=account.goodput,
        spent=[
            SpentInfo(name=plain(name), ns=ns, share=_share(name, ns, counted_ns))
            for name, ns in account.spent_ns.items()
        ],
        inferred_ns=goodput.inferred_ns,
        steps=goodput.steps,
        max_productive_step=goodput.max_productive_step,
        ideal_step_ns=goodput.ideal_step_ns,
        mean_time_between_failures_ns=mean_time_between_failures_ns(goodput),
        mean_time_to_recovery_ns=mean_time_to_recovery_ns(goodput),
        attempts=[_attempt(attempt) for attempt in goodput.attempts],
        disruptions=disruption_infos(goodput, account.start_ns, account.end_ns),
        ranks=[_rank(rank) for rank in goodput.ranks],
    )


def _share(name: str, ns: int, counted_ns: int) -> float:
    return ns / counted_ns if counted_ns and name != EXCLUDED else 0.0


def _attempt(attempt: AttemptAccount) -> AttemptSteps:
    return AttemptSteps(
        attempt=attempt.attempt,
        start_ns=attempt.start_ns,
        stop_ns=attempt.stop_ns,
        steps=attempt.steps,
        first_step=attempt.first_step,
        last_step=attempt.last_step,
        ideal_step_ns=attempt.ideal_step_ns,
    )


def _rank(rank: RankShare) -> RankInfo:
    return RankInfo(
        rank=rank.rank,
        steps=rank.steps,
        mean_step_ns=rank.mean_step_ns,
        awaited_steps=rank.awaited_steps,
        awaited_ns=rank.awaited_ns,
    )


def _parts(
    goodput: Goodput, account: Account, exclude: Iterable[Range], count: int
) -> Iterator[Account]:
    """The window in equal parts."""
    excluded = normalised(exclude)
    edges = (account.start_ns + account.total_ns * at // count for at in range(count + 1))
    for start, end in pairwise(edges):
        look()
        mine = [(a, b) for a, b in excluded if a < end and b > start]
        yield goodput.account(start, end, exclude=mine)


def _bucket(part: Account) -> BucketInfo:
    return BucketInfo(
        start_ns=part.start_ns,
        end_ns=part.end_ns,
        goodput=part.goodput,
        spent_ns={plain(name): ns for name, ns in part.spent_ns.items() if ns},
    )


def _intervals(
    goodput: Goodput, account: Account, exclude: Sequence[Range], most: int
) -> IntervalsInfo:
    all_of_them = goodput.intervals(account.start_ns, account.end_ns, exclude=exclude)
    intervals = list(islice(all_of_them, most + 1))
    exact = len(intervals) <= most
    if not exact:
        intervals = list(_largest(_parts(goodput, account, exclude, most)))
    return IntervalsInfo(
        exact=exact,
        start_ns=[start for start, _, _ in intervals],
        end_ns=[end for _, end, _ in intervals],
        name=[plain(name) for _, _, name in intervals],
    )


def _largest(parts: Iterable[Account]) -> Iterator[tuple[int, int, str]]:
    """Each part as its largest class; neighbours of one class are joined."""
    held: tuple[int, int, str] | None = None
    for part in parts:
        name = max(part.spent_ns, key=part.spent_ns.__getitem__)
        if held is not None and held[2] == name:
            held = held[0], part.end_ns, name
            continue
        if held is not None:
            yield held
        held = part.start_ns, part.end_ns, name
    if held is not None:
        yield held


# ── entries ────────────────────────────────────────────────────────────────────────────────────

_MARK: Final = struct.Struct("<6sqH")
_FLOOR: Final = struct.Struct("<q")
MOST_MARKS: Final = 256
LONGEST_CURSOR: Final = 6000


@dataclass(slots=True)
class _Cursor:
    """How far each journal was read, so that entries that arrive late are not missed."""

    floor_ns: int = LOWEST
    """Where to read from in journals without a mark."""
    marks: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """The time of the last entry given out, and how many entries of that time were given out."""

    @classmethod
    def of(cls, text: str) -> _Cursor:
        try:
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
            if not raw:
                return cls()
            (floor_ns,) = _FLOOR.unpack_from(raw)
            marks = _MARK.iter_unpack(raw[_FLOOR.size :])
            return cls(floor_ns, {key: (time_ns, count) for key, time_ns, count in marks})
        except (ValueError, binascii.Error, struct.error) as error:
            raise UsageError(
                f"after={shortened(text)} is not a cursor; give the last answer's `next`, or none"
            ) from error

    def text(self) -> str:
        newest = sorted(self.marks.items(), key=lambda mark: mark[1], reverse=True)
        if len(newest) > MOST_MARKS:
            self.floor_ns = max(self.floor_ns, newest[MOST_MARKS][1][0] + 1)
        packed = _FLOOR.pack(self.floor_ns) + b"".join(
            _MARK.pack(key, time_ns, count) for key, (time_ns, count) in newest[:MOST_MARKS]
        )
        return base64.urlsafe_b64encode(packed).decode()

    def mark(self, journal: JournalId) -> tuple[int, int]:
        return self.marks.get(_key(journal), (self.floor_ns, 0))

    def move(self, journal: JournalId, time_ns: int) -> None:
        known_ns, count = self.mark(journal)
        again = time_ns == known_ns and count < 0xFFFF
        self.marks[_key(journal)] = (time_ns, count + 1 if again else 1)


def _key(journal: JournalId) -> bytes:
    return hashlib.sha256(journal.encode("utf-8", "replace")).digest()[:6]


_Entry = tuple[int, JournalId, dict[str, Any]]


def entries(reading: Reading, given: Given) -> EntryList:
    run, limit, logger = reading.run(given["run"]), given["limit"], given["logger"]
    cursor = _Cursor.of(given["after"])
    journals = {row.journal for row in reading.store.processes(run) if row.role != "agent"}
    wanted = Wanted(
        metric=lambda metric: metric.startswith(ENTRY_PREFIX),
        labels={} if logger is None else {LOGGER: logger},
        kinds=(GoodputEntry.KIND,),
        spans=False,
        since={journal: cursor.mark(journal)[0] for journal in journals},
        rows=limit + len(journals),
    )
    found: list[dict[str, Any]] = []
    with reading.store.replay(run, wanted) as told:
        for time_ns, journal, entry in islice(_new(told, cursor, run, logger), limit):
            cursor.move(journal, time_ns)
            found.append(entry)
    return EntryList(run=run, entries=found, next=cursor.text() if found else given["after"])


def _new(
    told: Iterable[list[Batch]], cursor: _Cursor, run: RunId, logger: str | None
) -> Iterator[_Entry]:
    """The entries after the cursor, in the order in which they were recorded."""
    marks = dict(cursor.marks)
    meanings: dict[JournalId, _Meanings] = {}
    for stretch in told:
        held: list[_Entry] = []
        for batch in stretch:
            journal = batch.origin.journal
            meaning = meanings.setdefault(journal, _Meanings(run))
            meaning.learn(batch)
            mark_ns, given_out = marks.get(_key(journal), (cursor.floor_ns, 0))
            for time_ns, entry in meaning.entries(batch, logger):
                if time_ns == mark_ns and given_out:
                    given_out -= 1
                elif time_ns >= mark_ns:
                    held.append((time_ns, journal, entry))
        yield from sorted(held, key=lambda entry: entry[0])


class _Meanings:
    """What the numbers of one journal stand for."""

    def __init__(self, run: RunId) -> None:
        self._run = run
        self._job_name = ""
        self._series: dict[int, tuple[str, Mapping[str, str]]] = {}

    def learn(self, batch: Batch) -> None:
        for definition in batch.definitions:
            if isinstance(definition, RunScope):
                self._job_name = definition.name
            elif isinstance(definition, Series):
                self._series[definition.id] = definition.metric, definition.labels

    def entries(self, batch: Batch, logger: str | None) -> list[tuple[int, dict[str, Any]]]:
        points = batch.points
        found = [
            (time_ns, entry_of_point(*self._series[series], step, value, self._job_name))
            for series, time_ns, step, value in zip(
                points.series, points.time_ns, points.step, points.value, strict=True
            )
        ]
        for event in batch.events:
            told = GoodputEntry.of(event.body)
            entry = None if told.entry is None else dict(told.entry)
            if entry is not None and logger in (None, told.logger):
                found.append((event.time_ns, plain(entry)))
        return sorted(found, key=lambda entry: entry[0])


def classes() -> ClassList:
    return ClassList(
        classes=[
            ClassInfo(
                name=look.name,
                words=look.words,
                meaning=look.meaning,
                light=look.light,
                dark=look.dark,
            )
            for look in LOOKS
        ]
    )
