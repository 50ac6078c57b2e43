"""What a log that somebody brings is asked for, and how much of it is read again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.calculator.codes import item_of
from runwatch.compat.goodput.calculator.history import History
from runwatch.compat.goodput.calculator.strict import EntryAccount
from runwatch.compat.goodput.log.reading import OVERLAP, HistoryEntries
from tests.unit.compat.goodput.support import BEGIN, Entry, Fixed, moment, step, stories, told, when

SECOND = 1_000_000_000
STEPS = 1000
LAST = 5 + 3.0 * (STEPS - 1)
A_MINUTE = OVERLAP // timedelta(seconds=3)


class Counting:
    """Counts what it is asked and how many entries it gives out."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, Entry]] = []
        self.asked: list[dict[str, Any]] = []
        self.given: list[int] = []

    def write(self, entries: list[Entry]) -> None:
        for entry in entries:
            item = item_of(entry)
            assert item is not None
            self.rows.append((item.time, entry))

    def between(self, start: datetime | None, end: datetime | None) -> list[Entry]:
        after = start.timestamp() if start else float("-inf")
        until = end.timestamp() if end else float("inf")
        found = [entry for time, entry in self.rows if after < time <= until]
        self.given.append(len(found))
        return found


class ByTime(Counting):
    """As the original's own tests bring it: it goes by the times, and its cursor is always that of
    its very last entry."""

    def read_cloud_logging_entries(
        self, start_time: Any = None, end_time: Any = None, last_entry_info: Any = None
    ) -> tuple[list[Entry], Any]:
        self.asked.append(
            {"start_time": start_time, "end_time": end_time, "last_entry_info": last_entry_info}
        )
        last = moment(self.rows[-1][0])
        return self.between(start_time, end_time), (last, last)


class FirstGeneration(Counting):
    """No cursors."""

    def read_cloud_logging_entries(
        self, start_time: Any = None, end_time: Any = None
    ) -> list[Entry]:
        self.asked.append({"start_time": start_time, "end_time": end_time})
        return self.between(start_time, end_time)


class Keyless(Counting):
    """Takes a cursor and gives none."""

    def read_cloud_logging_entries(self, **asked: Any) -> tuple[list[Entry], Any]:
        self.asked.append(asked)
        return self.between(asked.get("start_time"), asked.get("end_time")), (None, None)


class Whole(Counting):
    """The first of all: it gives everything each time."""

    def read_cloud_logging_entries(self) -> list[Entry]:
        return self.between(None, None)


LOGS = (ByTime, FirstGeneration, Keyless)


def job(log: Counting) -> Counting:
    log.write([*told("J 0"), *(step(number, 5 + 3.0 * number) for number in range(STEPS))])
    return log


def ask(calculator: GoodputCalculator, asked: str) -> Any:
    return calculator.get_account() if asked == "strict" else calculator.get_job_goodput(True)


@pytest.mark.parametrize("asked", ["original", "strict"])
@pytest.mark.parametrize("kind", LOGS)
def test_only_the_last_minute_and_what_is_new_is_read_again(
    kind: type[Counting], asked: str
) -> None:
    log: Any = job(kind())
    clock = Fixed(BEGIN + LAST + 1)
    calculator = GoodputCalculator("job", "log", log, clock=clock)
    first = ask(calculator, asked)
    assert ask(calculator, asked) == first
    assert log.given == [STEPS + 1, A_MINUTE]

    log.write([step(STEPS + number, LAST + 3.0 * (number + 1)) for number in range(5)])
    clock.seconds += 20
    after = ask(calculator, asked)
    assert log.given == [STEPS + 1, A_MINUTE, A_MINUTE + 5]
    assert after == ask(GoodputCalculator("job", "log", log, clock=clock), asked) != first


def test_both_accounts_are_read_from_one_answer() -> None:
    log: Any = job(ByTime())
    calculator = GoodputCalculator("job", "log", log, clock=Fixed(BEGIN + LAST + 1))
    calculator.get_job_goodput()
    calculator.get_account()
    assert log.given == [STEPS + 1, A_MINUTE]


def test_it_is_asked_as_the_original_asks() -> None:
    """First for everything; then from the last entry until now, and with the cursor.  Ours begins
    a minute earlier: an entry may show up after later ones."""
    log: Any = job(ByTime())
    now = BEGIN + LAST + 1
    calculator = GoodputCalculator("job", "log", log, clock=Fixed(now))
    calculator.get_job_goodput()
    calculator.get_job_goodput()
    nothing = {"start_time": None, "end_time": None, "last_entry_info": None}
    since = when(LAST) - OVERLAP
    again = {
        "start_time": since, "end_time": moment(now), "last_entry_info": (since, when(LAST))
    }  # fmt: skip
    assert log.asked == [nothing, again]


def test_a_log_without_filters_is_not_taken_apart_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log: Any = job(Whole())
    calculator = GoodputCalculator("job", "log", log, clock=Fixed(BEGIN + LAST + 1))
    first, account = calculator.get_job_goodput(True), calculator.get_account()
    looked_at: list[Entry] = []

    def look(entry: Entry) -> Any:
        looked_at.append(entry)
        return item_of(entry)

    monkeypatch.setattr("runwatch.compat.goodput.log.reading.item_of", look)
    assert calculator.get_job_goodput(True) == first
    assert calculator.get_account() == account
    assert looked_at == []
    log.write([step(STEPS, LAST + 3.0)])
    assert calculator.get_job_goodput()[2] == STEPS - 1
    assert looked_at == [log.rows[-1][1]]


@pytest.mark.parametrize("kind", [*LOGS, Whole])
@pytest.mark.parametrize("asked", ["original", "strict"])
def test_what_comes_late_is_still_counted(kind: type[Counting], asked: str) -> None:
    late = told("C eval 21; c eval 22")
    in_time = [*told("J 0"), *(step(number, 5 + 3.0 * number) for number in range(9))]
    log: Any = kind()
    clock = Fixed(BEGIN + 40)
    log.write(in_time)
    calculator = GoodputCalculator("job", "log", log, clock=clock)
    first = ask(calculator, asked)
    log.rows[8:8] = [(BEGIN + 21 + n, entry) for n, entry in enumerate(late)]
    after = ask(calculator, asked)
    assert after == ask(GoodputCalculator("job", "log", log, clock=clock), asked) != first


def test_a_log_whose_clock_is_ahead_is_read_to_its_end() -> None:
    log, clock = ByTime(), Fixed(BEGIN + 10)
    log.write(told("J 0; S 0 5; S 1 8; S 2 100"))
    calculator = GoodputCalculator("job", "log", log, clock=clock)
    assert calculator.get_step_deviation().keys() == {0, 1}
    log.write(told("S 3 103"))
    assert calculator.get_step_deviation().keys() == {0, 1, 2}


def test_what_is_later_than_now_is_read_when_its_time_has_come() -> None:
    """Its cursor is beyond what was asked for."""
    log, clock = ByTime(), Fixed(BEGIN + 10)
    log.write(told("J 0; S 0 5; S 1 8"))
    calculator = GoodputCalculator("job", "log", log, clock=clock)
    calculator.get_job_goodput()
    log.write(told("S 2 11; S 3 14; S 4 500"))
    assert calculator.get_job_goodput()[2] == 0
    clock.seconds = BEGIN + 600
    assert calculator.get_job_goodput()[2] == 3


@settings(deadline=None)
@given(stories())
def test_the_account_of_a_history_is_that_of_its_entries(entries: list[Entry]) -> None:
    entries = told("J 0") + entries
    history = History()
    history.add(entries)
    assert list(history.items()) == [history.item(at) for at in range(len(history))]
    later = int(BEGIN + 10_000) * SECOND
    asked = EntryAccount(lambda place: (HistoryEntries(history, place or 0), len(history)))
    ours = asked.goodput(later)
    plain = EntryAccount(lambda place: (entries[place or 0 :], len(entries))).goodput(later)
    assert ours is not None and plain is not None
    assert list(ours.intervals()) == list(plain.intervals())


def test_a_checkpoint_of_a_history_begins_when_the_training_waited_for_it() -> None:
    save = {
        "event_type": "save", "step": 3, "directory": "gs://b",
        "wait_for_prev_start_time": BEGIN + 1.0, "wait_for_prev_duration_secs": 2.0,
        "checkpoint_manager_blocking_start_time": BEGIN + 4.0,
        "checkpoint_manager_blocking_duration_secs": 5.0,
    }  # fmt: skip
    history = History()
    history.add([save, *told("T 3 gs://b 1.5 20")])
    saved, restored = HistoryEntries(history)
    assert saved["checkpoint_manager_blocking_start_time"] == BEGIN + 4.0
    assert restored["checkpoint_manager_start_time"] == BEGIN + 20
    assert list(HistoryEntries(history, 1)) == [restored] == list(HistoryEntries(history)[1:])
