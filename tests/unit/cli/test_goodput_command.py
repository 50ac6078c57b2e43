"""`runwatch goodput`: times that people write, how the answer looks, logs of the original."""

from __future__ import annotations

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runwatch.cli import goodput_picture
from runwatch.cli.__main__ import main
from runwatch.cli.goodput_command import moment
from runwatch.errors import UsageError

SECOND = 10**9
START, END = 1_700_000_000 * SECOND, 1_700_010_000 * SECOND


# ── times ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-2h", END - 7200 * SECOND),
        ("90m", START + 5400 * SECOND),
        ("+1h30m", START + 5400 * SECOND),
        ("-1.5s", END - 1_500_000_000),
        ("250ms", START + 250_000_000),
        ("-1d", END - 86_400 * SECOND),
        ("1700000123", 1_700_000_123 * SECOND),
        ("1700000123.25", 1_700_000_123_250_000_000),
        ("1700000123456", 1_700_000_123_456_000_000),
        ("1700000123456789", 1_700_000_123_456_789_000),
        ("1700000123456789123", 1_700_000_123_456_789_123),
        ("0", 0),
        ("2023-11-14T22:13:20Z", START),
        ("2023-11-14T23:13:20.000001+01:00", START + 1000),
        ("2023-11-14 22:13:20Z", START),
    ],
)
def test_a_time_that_people_write(text: str, expected: int) -> None:
    assert moment(text, START, END) == expected


def test_a_time_without_an_offset_is_local() -> None:
    local = datetime(2024, 5, 1, 12, 30)
    assert moment("2024-05-01T12:30", START, END) == round(local.timestamp()) * SECOND


@pytest.mark.parametrize("text", ["", "soon", "2h ago", "-", "1x", "2024-13-01", "12:99", "--1h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        moment(text, START, END)


# ── the picture ────────────────────────────────────────────────────────────────────────────────

RUN = {"name": "llama", "state": "running"}


def answer(**changed: Any) -> dict[str, Any]:
    spent = {
        "productive": 700, "data_loading": 200, "wasted_progress": 60, "custom:my eval": 40,
        "stall": 0,
    }  # fmt: skip
    bucket = {"start_ns": 0, "end_ns": 1, "goodput": 0.5, "spent_ns": {"productive": 1}}
    late = bucket | {"spent_ns": {"wasted_progress": 2, "productive": 1}}
    found = {
        "live": True, "run_start_ns": START, "run_end_ns": END, "start_ns": START, "end_ns": END,
        "total_ns": 1000 * SECOND, "counted_ns": 1000 * SECOND, "goodput": 0.7,
        "spent": [{"name": n, "ns": s * SECOND, "share": s / 1000} for n, s in spent.items()],
        "inferred_ns": 12 * SECOND, "steps": 1400, "ideal_step_ns": SECOND // 2,
        "attempts": [{}, {}], "over_time": [bucket] * 90 + [late] * 30,
        "mean_time_between_failures_ns": 900 * SECOND, "mean_time_to_recovery_ns": 30 * SECOND,
        "disruptions": [
            {
                "attempt": 1, "time_ns": START, "cause": "rank 3 killed by SIGKILL", "hung": True,
                "lost_steps": 120, "wasted_ns": 60 * SECOND, "recovery_ns": None, "back_ns": None,
            }
        ],
        "ranks": [
            {"rank": 0, "awaited_steps": 3, "awaited_ns": SECOND},
            {"rank": 3, "awaited_steps": 700, "awaited_ns": 90 * SECOND},
        ],
    }  # fmt: skip
    return found | changed


def seen(width: int, **changed: Any) -> list[str]:
    out = Console(width=width, file=io.StringIO(), color_system=None)
    out.print(goodput_picture.account(RUN, answer(**changed), width))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    lines = seen(width)
    assert max(map(len, lines)) <= width
    shown = "\n".join(lines)
    assert all(word in shown for word in ("llama", "productive", "my eval", "70.0 %"))


def test_it_says_what_there_is_to_say() -> None:
    text = "\n".join(seen(120))
    assert "11 min 40 s of 16 min 40 s were productive" in text
    assert "of which up to 12.0 s inferred" in text
    assert "rank 3 was the last to begin 700 steps: others waited 1 min 30 s for it" in text
    assert "hung; rank 3 killed by SIGKILL" in text
    assert "not yet" in text
    assert "mean time between failures 15 min 00 s · mean time to recovery 30.0 s" in text
    assert "hang or stall" not in text  # no time went there
    bar = next(line for line in text.splitlines() if line.startswith("█" * 20))
    assert bar == "█" * 90 + "×" * 30


def test_what_there_is_not_is_not_said() -> None:
    quiet = seen(80, disruptions=[], ranks=[], inferred_ns=0, goodput=None, over_time=[], spent=[
        {"name": "productive", "ns": 0, "share": 0.0},
        {"name": "excluded", "ns": SECOND, "share": 1.0},
    ])  # fmt: skip
    text = "\n".join(quiet)
    assert "there is no time that counts" in text
    assert "100 %" in text
    for word in ("inferred", "waited", "failures", "disrupted"):
        assert word not in text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.99999, "> 99.9 %"), (0.00001, "< 0.1 %"), (0.4567, "45.7 %")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert goodput_picture.percent(share) == text


# ── the command ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """As ml-goodput-measurement keeps it: ten steps of 3 s, an evaluation of 5 s among them."""
    base = 1_700_000_000.0
    entries: list[dict[str, Any]] = [{"job_start_time": base}]
    entries += [{"step_count": i, "step_start_time": base + 5 + 3 * i} for i in range(10)]
    entries.append({"job_end_time": base + 35})
    path = tmp_path / "my job_timeline.jsonl"
    path.write_text("".join(json.dumps({"job_name": "my job"} | e) + "\n" for e in entries))
    return path


def test_a_log_of_the_original_is_imported_and_shown(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--dir", str(tmp_path / "runwatch")]
    assert main(["goodput", "--import", str(log), *where]) == 0
    said = capsys.readouterr()
    assert "12 entries of job 'my job': 12 new" in said.err
    assert "30.0 s of 35.0 s were productive" in said.out
    assert main(["goodput", "--import", str(log), "--json", *where]) == 0
    said = capsys.readouterr()
    assert "12 entries of job 'my job': 0 new" in said.err
    found = json.loads(said.out)
    assert found["goodput"] == pytest.approx(30 / 35)
    assert (found["steps"], found["live"]) == (10, False)


def test_windows_relative_to_the_run(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--dir", str(tmp_path / "runwatch"), "--json"]
    assert main(["goodput", "--import", str(log), *where]) == 0
    run = json.loads(capsys.readouterr().out)["run"]

    def ask(*words: str) -> dict[str, Any]:
        assert main(["goodput", run, *words, *where]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    assert ask("--since", "5s")["total_ns"] == 30 * SECOND
    assert ask("--since", "-10s")["total_ns"] == 10 * SECOND
    assert ask("--until", "-10s")["total_ns"] == 25 * SECOND
    assert (
        ask("--since", "2023-11-14T22:13:30Z", "--until", "1700000020")["total_ns"] == 10 * SECOND
    )
    found = ask("--exclude", "0s/5s", "--exclude", "-10s/-5s", "--buckets", "3")
    assert (found["counted_ns"], found["goodput"]) == (25 * SECOND, 1.0)
    assert len(found["over_time"]) == 3


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["goodput"], 2, "say which run"),
        (["goodput", "nope"], 1, "'nope'"),
        (["goodput", "job", "--since", "soon"], 2, "not a time: 'soon'"),
        (["goodput", "job", "--since", "99m"], 2, "nothing of the run lies in this window"),
        (["goodput", "job", "--since", "20s", "--until", "10s"], 2, "is after until"),
        (["goodput", "job", "--exclude", "10s"], 2, "--exclude FROM/TO"),
        (["goodput", "job", "--exclude", "20s/10s"], 2, "ends before it begins"),
        (["goodput", "job", "--buckets", "0"], 2, "buckets"),
        (["goodput", "--import", "/nowhere/log.jsonl"], 1, "/nowhere/log.jsonl"),
        (["goodput", "--import", "cloud-logging"], 2, "--job"),
    ],
)
def test_errors_name_the_value_and_the_way_out(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    words: list[str], code: int, part: str,
) -> None:  # fmt: skip
    where = ["--dir", str(tmp_path / "runwatch"), "--json"]
    renamed = tmp_path / "job.jsonl"
    renamed.write_text(log.read_text().replace("my job", "job"))
    assert main(["goodput", "--import", str(renamed), *where]) == 0
    capsys.readouterr()
    assert main([*words, *where]) == code
    assert part in capsys.readouterr().err
