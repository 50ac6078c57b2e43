"""Asks the original about random jobs, and keeps what it answers.

    python scripts/record_goodput_answers.py tests/fixtures/goodput

Run it with an interpreter that has ml-goodput-measurement 0.2.3 installed.  It writes
`answers.json.gz`: random jobs and the answers about them.  The same seeds give the same jobs.
(Those that are measured are in record_goodput_shapes.py.)

Where the original is wrong and ours is not to follow it, a job has a `purpose`, and next to what
the original answers it has `right`: what it answers about the same job recorded as it ought to be.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
Job = dict[str, Any]

JOB = "job"
BEGIN = 1_700_000_000.0
SEEDS = {"plain": 140, "elastic": 50, "clock": 30}
SAVE_PARTS = (
    "wait_for_prev",
    "checkpointer_blocking",
    "get_old_steps",
    "checkpoint_manager_blocking",
)


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────


class Writer:
    """A job that records what happens to it; times are told to the millisecond."""

    def __init__(self, seed: str, family: str) -> None:
        self.random = random.Random(seed)
        self.family = family
        self.now = BEGIN
        self.entries: list[Entry] = []

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def wait(self, low: float, high: float) -> None:
        self.now = round(self.now + self.random.uniform(low, high), 3)

    def say(self, field: str, **more: Any) -> None:
        self.entries.append({"job_name": JOB, **more, field: self.now})

    def pair(self, what: str, low: float, high: float, ends: float = 0.9, **more: Any) -> None:
        """Sometimes the end is missing."""
        self.wait(0.001, 0.5)
        self.say(f"{what}_start_time", **more)
        self.wait(low, high)
        if self.chance(ends):
            self.say(f"{what}_end_time", **more)

    def write(self) -> list[Entry]:
        step = self.random.choice((0, 0, 0, 3))
        for attempt in range(self.random.randint(1, 4)):
            if attempt == 0 or self.chance(0.9):
                self.say("job_start_time")
            step = self.attempt(step)
            self.wait(0.001, 20)
            step = max(0, step - self.random.choice((0, 1, 2, 3, 5, 20)))
        if self.chance(0.85):
            self.wait(0.001, 3)
            self.say("job_end_time")
        return self.entries

    def attempt(self, step: int) -> int:
        if self.family == "elastic":
            self.elastic_begin()
        for what in ("tpu_init", "training_prep"):
            if self.chance(0.5):
                self.pair(what, 0.001, 5)
        if self.chance(0.2):
            self.checkpoint("restore", step, 0.3)
        loads, evaluates = self.chance(0.4), self.chance(0.4) and self.family != "clock"
        count = self.random.choice((0, 1, 2, 3, 6, 10, 20))
        for number in range(count):
            if loads and self.chance(0.8):
                self.pair("data_loading", 0.001, 2)
            self.wait(0.001, 0.1)
            self.say("step_start_time", step_count=step)
            self.wait(0.2, 8 if number == 0 else 3)
            self.after_step(step, evaluates)
            step += 1
            if self.chance(0.05):
                step += self.random.randint(1, 3)
            if self.family == "clock":
                step = self.disturb(step)
        if self.family == "elastic" and self.chance(0.3):
            self.elastic_reinit()
        return step

    def after_step(self, step: int, evaluates: bool) -> None:
        if evaluates and self.chance(0.4):
            kind = self.random.choice(("eval", "EVAL", "sdc check"))
            self.pair("custom_badput_event", 0.001, 1, 0.8, custom_badput_event_type=kind)
        if self.chance(0.15):
            self.checkpoint("save", step, 0.05)
        if self.family == "elastic" and self.chance(0.1):
            self.slices()
        if self.chance(0.02):
            self.say("some_time", event_type="note")  # someone else's entry

    def disturb(self, step: int) -> int:
        """A clock that is set back, steps in a strange order."""
        if self.chance(0.1):
            self.wait(-8, 0)
        return max(0, step - self.random.randint(1, 8)) if self.chance(0.1) else step

    def checkpoint(self, event: str, step: int, low: float) -> None:
        directory = self.random.choice(("gs://bucket/a", "/local/a", "gs://bucket/b", "s3://b/c"))
        seconds = round(self.random.uniform(low, low + 0.5), 3)
        if event == "restore" and self.chance(0.3):
            event = "emergency_restore"
        names: tuple[str, ...] = SAVE_PARTS
        if event != "save":
            names = ("checkpointer", "checkpoint_manager")
        for host in range(self.random.choice((1, 1, 2, 3))):
            self.wait(0.001, 0.1)
            taken = round(seconds * (1 + host), 3)
            fields: Entry = {"event_type": event, "step": step, "directory": directory}
            for name in names:
                fields |= {f"{name}_start_time": self.now, f"{name}_duration_secs": taken}
            if event == "emergency_restore":
                fields |= {"broadcast_start_time": self.now, "broadcast_duration_secs": 0.25}
            self.entries.append({"job_name": JOB, **fields})

    def elastic_begin(self) -> None:
        if self.chance(0.7):
            self.slices()
        if self.chance(0.5):
            kind = self.random.choice(("slice_down", "elastic_scale_up", "SCALE_UP", "other"))
            self.pair("elastic_wait", 0.001, 10, elastic_wait_event_type=kind)
        if self.chance(0.5):
            self.elastic_reinit()

    def elastic_reinit(self) -> None:
        self.wait(0.001, 1)
        self.say("elastic_reinit_start_time")
        for what in ("tpu_init", "training_prep"):
            if self.chance(0.6):
                self.pair(what, 0.001, 5)
        self.wait(0.001, 2)
        if self.chance(0.9):
            self.say("elastic_reinit_end_time")

    def slices(self) -> None:
        self.wait(0.001, 0.5)
        counts = {"active_slices": self.random.randint(0, 4), "total_slices": 4}
        counts["available_slices"] = self.random.randint(counts["active_slices"], 4)
        self.say("elastic_slice_counts_timestamp", **counts)


def plain_jobs() -> Iterator[Job]:
    for family, count in SEEDS.items():
        for seed in range(count):
            writer = Writer(f"{family} {seed}", family)
            entries = writer.write()
            chooser = random.Random(f"questions {family} {seed}")
            length = writer.now - BEGIN
            yield {
                "name": f"{family} {seed}",
                "elastic": family == "elastic",
                "entries": entries,
                "windows_asked": [window(chooser, length) for _ in range(2)],
                "exclusions_asked": [[], exclusions(chooser, length)],
            }


def window(chooser: random.Random, length: float) -> list[float]:
    """Between entries, which are told to the millisecond."""
    start = round(chooser.uniform(-5, length * 0.6), 2) + 0.0005
    return [BEGIN + start, BEGIN + round(chooser.uniform(start + 1, length * 1.2 + 5), 2) + 0.0005]


def exclusions(chooser: random.Random, length: float) -> list[list[float]]:
    found, start = [], chooser.uniform(-5, length / 2)
    for _ in range(chooser.choice((1, 1, 2, 3))):
        end = start + chooser.uniform(0.001, length / 3)
        found.append([BEGIN + round(start, 3), BEGIN + round(end, 3)])
        start = end + chooser.uniform(-length / 20, length / 4)
    return found


def simple(count: int, seconds: float = 3.0, first: int = 0, begin: float = 5.0) -> list[Entry]:
    """`count` steps of `seconds`."""
    return [
        {"job_name": JOB, "step_count": first + n, "step_start_time": BEGIN + begin + n * seconds}
        for n in range(count)
    ]


def at(field: str, time: float, **more: Any) -> Entry:
    return {"job_name": JOB, **more, field: BEGIN + time}


def save(step: int, time: float, seconds: float | None, **more: Any) -> Entry:
    fields: Entry = {"event_type": "save", "step": step, "directory": "gs://bucket/a"}
    for name in SAVE_PARTS:
        fields |= {f"{name}_start_time": BEGIN + time, f"{name}_duration_secs": seconds}
    return {"job_name": JOB, **{k: v for k, v in (fields | more).items() if v != "absent"}}


def purposeful_jobs() -> Iterator[tuple[str, list[Entry], list[Entry]]]:
    """(purpose, what is recorded, what ought to have been)"""
    whole = [at("job_start_time", 0), *simple(10), at("job_end_time", 40)]
    twice = [entry for entry in whole for _ in range(2)]
    yield "B21: each entry written by two processes", twice, whole
    yield "B21: the whole log written again", whole + whole, whole
    disrupted = [
        at("job_start_time", 0),
        *simple(10),
        at("job_start_time", 60),
        *simple(8, first=6, begin=65),
        at("job_end_time", 95),
    ]
    yield "B21: a disrupted job, twice", [e for e in disrupted for _ in range(2)], disrupted
    ended = [at("job_start_time", 0), *simple(5), at("job_end_time", 22)]
    going_on = [at("job_start_time", 100), *simple(6, first=3, begin=105)]
    resumed = [e for e in ended if "job_end_time" not in e] + going_on
    yield "B8: goes on after its end, two steps redone", ended + going_on, resumed
    exactly = [at("job_start_time", 100), *simple(6, first=5, begin=105)]
    resumed = [e for e in ended if "job_end_time" not in e] + exactly
    yield "B8: goes on after its end, with the next step", ended + exactly, resumed
    good = [at("job_start_time", 0), *simple(5), save(4, 19, 2.0), at("job_end_time", 40)]
    for what, broken in (
        ("duration", save(3, 16, None)),
        ("duration at all", save(3, 16, "absent")),  # type: ignore[arg-type]
    ):
        yield f"B11: a save without a {what}", good[:5] + [broken] + good[5:], good
    local = [*good[:5], save(3, 16, 1.5, directory="/local"), *good[5:]]
    nowhere = [*good[:5], save(3, 16, 1.5, directory="absent"), *good[5:]]
    yield "B11: a save without a directory", nowhere, local


# ── the original's answers ────────────────────────────────────────────────────────────────────


class MemoryLog:
    """A back end whose log times are the times that entries state."""

    def __init__(self, entries: list[Entry]) -> None:
        self.rows = [(stated(entry), entry) for entry in entries]

    def read_cloud_logging_entries(
        self,
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        last_entry_info: Any = None,
    ) -> tuple[list[Entry], Any]:
        known = int(last_entry_info[1]) + 1 if last_entry_info and last_entry_info[1] else 0
        chosen = [
            entry
            for time, entry in self.rows[known:]
            if (start_time is None or time > start_time) and (end_time is None or time <= end_time)
        ]
        return chosen, (self.rows[-1][0], str(len(self.rows) - 1)) if self.rows else (None, None)


def stated(entry: Entry) -> datetime:
    return moment(next(v for k, v in entry.items() if "time" in k and isinstance(v, float)))


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)  # noqa: UP017, the original wants this


def plain(value: Any) -> Any:
    """Numbers that JSON takes, kinds by their names."""
    if isinstance(value, dict):
        return {str(getattr(k, "name", k)): plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return value if isinstance(value, int | str) else float(value)


def asked(question: Callable[[], Any]) -> Any:
    try:
        return plain(question())
    except (ValueError, TypeError, KeyError) as error:
        return {"error": type(error).__name__}


class Original:
    def __init__(self, folder: Path) -> None:
        from ml_goodput_measurement import goodput, goodput_elastic

        logging.disable(logging.CRITICAL)
        self._makers = (goodput.GoodputCalculator, goodput_elastic.ElasticGoodputCalculator)
        self._folder = folder
        self._count = 0

    def calculator(self, entries: list[Entry], elastic: bool = False) -> Any:
        """A new one for every question: they leave traces in one another's answers."""
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return self._makers[elastic](JOB, "log", MemoryLog(entries), cache_dir=str(folder))

    def job(self, entries: list[Entry], elastic: bool) -> dict[str, Any]:
        calculator = self.calculator(entries, elastic)
        answer = asked(lambda: calculator.get_job_goodput(True))
        info = calculator._goodput_cache.get_goodput_info()
        if info is None:
            return {"answer": answer}
        details = plain(calculator.get_job_goodput_details())
        del details["step_time_deviation"], details["goodput_time"], details["badput_time"]
        return {
            "answer": answer,
            "seconds": {
                "productive": float(info.total_productive_time),
                **plain(info.total_unproductive_time),
            },
            "last_recorded_step": info.last_recorded_step,
            "details": details,
        }

    def checkpoints(self, entries: list[Entry]) -> dict[str, Any]:
        from ml_goodput_measurement import checkpoint_badput_calculator as checkpoints

        options = checkpoints.CheckpointLoggerOptions(use_goodput_logger=True)
        calculator = checkpoints.CheckpointBadputCalculator(options)
        calculator.entries = [entry for entry in entries if "directory" in entry]
        found = {}
        for kind in ("persistent_and_local", "persistent", "local") if calculator.entries else ():
            save = calculator.calculate_save_operation_checkpoint_manager_blocking_time(kind)
            restore = calculator.calculate_restore_operation_checkpoint_manager_blocking_time(kind)
            found[kind] = {"save": plain(vars(save)), "restore": plain(vars(restore))}
        return found

    def answers(self, job: Job) -> dict[str, Any]:
        entries, elastic = job["entries"], job["elastic"]
        windows = [tuple(map(moment, pair)) for pair in job["windows_asked"]]
        apart = [[tuple(map(moment, pair)) for pair in pairs] for pairs in job["exclusions_asked"]]

        def fresh(name: str, *arguments: Any) -> Any:
            return asked(lambda: getattr(self.calculator(entries, elastic), name)(*arguments))

        return {
            "now": time.time(),
            **self.job(entries, elastic),
            "checkpoints": self.checkpoints(entries),
            "deviations": fresh("get_step_deviation"),
            "windows": [fresh("get_job_goodput_interval", *pair) for pair in windows],
            "window_details": [fresh("get_interval_metric_details", *pair) for pair in windows],
            "exclusions": [
                fresh("get_job_goodput_with_exclusions", pairs, True) for pairs in apart
            ],
        }


def record_jobs(original: Original) -> list[Job]:
    jobs = [job | original.answers(job) for job in plain_jobs()]
    for purpose, entries, ought in purposeful_jobs():
        jobs.append(
            {
                "name": purpose,
                "purpose": purpose,
                "elastic": False,
                "entries": entries,
                "now": time.time(),
                **original.job(entries, False),
                "right": original.job(ought, False),
            }
        )
    return jobs


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        jobs = record_jobs(Original(Path(scratch)))
    text = json.dumps(jobs, separators=(",", ":"))
    with gzip.GzipFile(folder / "answers.json.gz", "wb", mtime=0) as file:
        file.write(text.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
