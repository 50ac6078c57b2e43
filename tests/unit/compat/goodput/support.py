"""Jobs told in short, a log in memory, and what the original answered."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from runwatch.compat.goodput.calculator.calculator import GoodputCalculator
from runwatch.compat.goodput.calculator.codes import item_of
from runwatch.compat.goodput.calculator.elastic import ElasticGoodputCalculator
from runwatch.compat.goodput.goodput_utils import BadputType

FIXTURES = Path(__file__).parents[3] / "fixtures" / "goodput"
BEGIN = 1_700_000_000.0

Entry = dict[str, Any]

_TIMES = {
    "J": "job_start_time",
    "j": "job_end_time",
    "I": "tpu_init_start_time",
    "i": "tpu_init_end_time",
    "P": "training_prep_start_time",
    "p": "training_prep_end_time",
    "L": "data_loading_start_time",
    "l": "data_loading_end_time",
    "R": "elastic_reinit_start_time",
    "r": "elastic_reinit_end_time",
}
_TYPED = {
    "C": ("custom_badput_event_type", "custom_badput_event_start_time"),
    "c": ("custom_badput_event_type", "custom_badput_event_end_time"),
    "W": ("elastic_wait_event_type", "elastic_wait_start_time"),
    "w": ("elastic_wait_event_type", "elastic_wait_end_time"),
}


DISRUPTED = (
    "J 0; I 0; i 1; P 1; p 3; L 3; l 5; S 0 5; S 1 13; S 2 16; S 3 19; S 4 22; "
    "J 30; S 2 35; S 3 43; S 4 46; j 49"
)


def told(story: str) -> list[Entry]:
    """`J 0; S 0 5; C eval 6; c eval 7; V 3 gs://b 1.5 20; N 2 4 3 0; j 30` as log entries.

    Capitals are starts.  J job, I initialisation, P preparation, L load, R re-initialisation,
    S number time, C/W type time, V/T step directory seconds time (save, restore), N active total
    available time.
    """
    return [_entry(*item.split()) for item in story.split(";") if item.strip()]


def _entry(letter: str, *words: str) -> Entry:
    time = BEGIN + float(words[-1])
    if letter in _TIMES:
        fields: Entry = {_TIMES[letter]: time}
    elif letter in _TYPED:
        type_field, time_field = _TYPED[letter]
        fields = {type_field: words[0], time_field: time}
    elif letter == "S":
        fields = {"step_count": int(words[0]), "step_start_time": time}
    elif letter == "N":
        names = ("active_slices", "total_slices", "available_slices")
        fields = dict(zip(names, map(int, words), strict=False))
        fields["elastic_slice_counts_timestamp"] = time
    else:
        fields = _checkpoint("save" if letter == "V" else "restore", words, time)
    return {"job_name": "job", **fields}


def _checkpoint(event: str, words: tuple[str, ...], time: float) -> Entry:
    step, directory, seconds, _ = words
    name = "checkpoint_manager_blocking" if event == "save" else "checkpoint_manager"
    return {
        "event_type": event,
        "step": int(step),
        "directory": directory,
        f"{name}_start_time": time,
        f"{name}_duration_secs": float(seconds),
    }


def when(seconds: float) -> datetime:
    """So long after the beginning of stories."""
    return moment(BEGIN + seconds)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Fixed:
    """A clock that stands still."""

    def __init__(self, seconds: float = BEGIN + 1_000_000) -> None:
        self.seconds = seconds

    @property
    def wall_ns(self) -> Callable[[], int]:
        return lambda: round(self.seconds * 1e9)

    @property
    def mono_ns(self) -> Callable[[], int]:
        return self.wall_ns

    def wait(self, seconds: float, wake: Callable[[float], bool]) -> bool:
        return wake(0)


class MemoryLog:
    """A back end in memory.  The log's time of an entry is the first that it states, or `at`."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.rows: list[tuple[float, int, Entry]] = []
        self.asked: list[Any] = []
        for entry in entries:
            self.write_cloud_logging_entry(entry)

    def write_cloud_logging_entry(self, entry: Entry, at: float | None = None) -> None:
        if at is None:
            item = item_of(entry)
            at = BEGIN if item is None else item.time
        self.rows.append((at, len(self.rows), entry))

    def flush(self) -> None:
        pass

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: Any = None,
    ) -> tuple[list[Entry], Any]:
        """By time, as Cloud Logging does: what comes late lies before the cursor."""
        self.asked.append(last_entry_info)
        after = start_time.timestamp() if start_time else float("-inf")
        until = end_time.timestamp() if end_time else float("inf")
        seen = (last_entry_info[0].timestamp(), last_entry_info[1]) if last_entry_info else None
        chosen = [
            row
            for row in sorted(self.rows, key=lambda row: row[:2])
            if after < row[0] <= until and (seen is None or row[:2] > seen)
        ]
        if not chosen:
            return [], last_entry_info
        time, number, _ = chosen[-1]
        return [entry for _, _, entry in chosen], (moment(time), number)


class ListedLog(MemoryLog):
    """A back end in memory that gives entries as they were written."""

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: Any = None,
    ) -> tuple[list[Entry], Any]:
        known = 0 if last_entry_info is None else last_entry_info[1]
        return [entry for _, _, entry in self.rows[known:]], (None, len(self.rows))


# ── what the original answered ────────────────────────────────────────────────────────────────


@cache
def _recorded() -> list[dict[str, Any]]:
    with gzip.open(FIXTURES / "answers.json.gz") as file:
        found: list[dict[str, Any]] = json.load(file)
        return found


def recorded(*, purposeful: bool) -> list[dict[str, Any]]:
    """Jobs, and the original's answers about them (scripts/record_goodput_answers.py).

    Purposeful ones are those about which ours gives another answer on purpose.
    """
    return [job for job in _recorded() if ("purpose" in job) is purposeful]


def calculator_of(job: dict[str, Any]) -> GoodputCalculator:
    make = ElasticGoodputCalculator if job["elastic"] else GoodputCalculator
    return make("job", "log", ListedLog(job["entries"]), clock=Fixed(job["now"]))


def same(found: Any, expected: Any) -> bool:
    """To a millionth, of a unit or of the number; a kind that is not told of is 0."""
    if isinstance(expected, dict) and isinstance(found, dict):
        names = found.keys() | expected.keys()
        return all(same(found.get(name, 0.0), expected.get(name, 0.0)) for name in names)
    if isinstance(expected, dict) or isinstance(found, dict):
        return not expected and not found
    return math.isclose(found, expected, rel_tol=1e-6, abs_tol=1e-6)


def by_name(badput: Mapping[BadputType, Any]) -> dict[str, Any]:
    return {kind.name: amount for kind, amount in badput.items()}


# ── jobs in which anything may happen ─────────────────────────────────────────────────────────


def step(number: int, time: float) -> Entry:
    return {"job_name": "job", "step_count": number, "step_start_time": BEGIN + time}


_actions = st.lists(
    st.tuples(st.sampled_from("SSSSSSBbJjIiPpLlCcV"), st.integers(0, 400)), max_size=80
)


@st.composite
def stories(draw: st.DrawFn) -> list[Entry]:
    """Jobs in which anything may happen, with a clock that never stands still."""
    time, number = 0.0, draw(st.integers(0, 3))
    entries: list[Entry] = []
    for letter, amount in draw(_actions):
        time += 0.25 + amount / 64
        match letter:
            case "S":
                entries.append(step(number, time))
                number += 1
            case "B":
                number = max(number - amount % 9, 0)
            case "b":
                number += amount % 3
            case "C" | "c":
                entries += told(f"{letter} {'eE'[amount % 2]} {time}")
            case "V":
                entries += told(f"V {number} {('gs://a', '/a')[amount % 2]} {amount / 64} {time}")
            case _:
                entries += told(f"{letter} {time}")
    return entries
