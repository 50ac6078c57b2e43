from __future__ import annotations

import pytest

from runwatch.record import JournalId, RunId
from runwatch.rows import Latest, SeriesRow
from runwatch.views.series import (
    Headline,
    Question,
    attempt_of,
    choose,
    curve_labels,
    headline,
)

RUN = RunId("run")
ATTEMPTS = {(JournalId("a0"), RUN): 1, (JournalId("a1"), RUN): 1, (JournalId("b0"), RUN): 2}


def row(
    number: int,
    journal: str,
    metric: str = "loss",
    /,
    *,
    rank: int = 0,
    device: str = "",
    host: str = "h",
    **labels: str,
) -> SeriesRow:
    return SeriesRow(number, JournalId(journal), RUN, host, rank, device, metric, "", labels)


ROWS = [
    row(1, "b0"),
    row(2, "a1", rank=1),
    row(3, "a0"),
    row(4, "a0", "gpu_used_bytes", device="0"),
    row(5, "a0", "gpu_used_bytes", device="1"),
    row(6, "agent", "cpu_seconds", journal="b0"),
    row(7, "agent", "load", host="other"),
]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (Question(), [6, 4, 5, 7, 3, 2, 1]),
        (Question(metrics=("loss",)), [3, 2, 1]),
        (Question(metrics=("loss", "load")), [7, 3, 2, 1]),
        (Question(ranks=(1,)), [2]),
        (Question(devices=("1",)), [5]),
        (Question(devices=("",), metrics=("gpu_used_bytes",)), []),
        (Question(hosts=("other",)), [7]),
        (Question(attempts=(2,)), [6, 1]),
        (Question(attempts=(1,), ranks=(0,), metrics=("loss",)), [3]),
        (Question(attempts=(9,)), []),
    ],
)
def test_choosing(question: Question, expected: list[int]) -> None:
    assert [found.series for found in choose(ROWS, question, ATTEMPTS)] == expected


def test_a_host_has_no_attempt_and_a_process_seen_from_outside_has_its_own() -> None:
    assert [attempt_of(found, ATTEMPTS) for found in ROWS] == [2, 1, 1, 1, 1, 2, None]


def test_labels_say_only_what_tells_curves_apart() -> None:
    assert curve_labels(ROWS[2:3], ATTEMPTS) == {3: "loss"}
    assert curve_labels(ROWS[1:3], ATTEMPTS) == {2: "loss · rank 1", 3: "loss · rank 0"}
    assert curve_labels(ROWS[:3], ATTEMPTS) == {
        1: "loss · rank 0 · attempt 2",
        2: "loss · rank 1 · attempt 1",
        3: "loss · rank 0 · attempt 1",
    }
    assert curve_labels(ROWS[3:5], ATTEMPTS) == {4: "gpu_used_bytes · 0", 5: "gpu_used_bytes · 1"}
    told = curve_labels([row(1, "a0", split="a"), row(2, "a0", split="b")], ATTEMPTS)
    assert told == {1: "loss · split=a", 2: "loss · split=b"}
    assert curve_labels([], ATTEMPTS) == {}


def points(*found: tuple[int, int, float]) -> dict[int, Latest]:
    return {series: Latest(series, time_ns, time_ns, value) for series, time_ns, value in found}


def test_the_headline_is_the_newest_training_loss_of_rank_zero() -> None:
    rows = [
        row(1, "a0", "eval/loss"),
        row(2, "a0", "train_loss"),
        row(3, "b0", "train_loss"),
        row(4, "b0", "train_loss", rank=1),
        row(5, "b0", "learning_rate"),
    ]
    latest = points((1, 90, 1.0), (2, 10, 2.0), (3, 20, 3.0), (4, 30, 4.0), (5, 99, 5.0))
    assert headline(rows, latest) == Headline("train_loss", 3.0, 20, 20)
    plain = [*rows, row(6, "b0", "loss")]
    assert headline(plain, {**latest, **points((6, 5, 6.0))}) == Headline("loss", 6.0, 5, 5)


@pytest.mark.parametrize("metric", ["gloss", "losses_total", "learning_rate", "closs"])
def test_what_is_no_loss_is_no_headline(metric: str) -> None:
    assert headline([row(1, "a0", metric)], points((1, 1, 1.0))) is None


def test_no_point_no_headline() -> None:
    assert headline([row(1, "a0", "loss")], {}) is None
