"""`runwatch goodput`: times that people write, how the answer looks, logs of the original."""

from __future__ import annotations

import io
import json
import re
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runwatch.cli import source
from runwatch.cli.__main__ import main
from runwatch.cli.pictures import goodput as goodput_picture
from runwatch.cli.pictures import rollup as rollup_picture
from runwatch.cli.times import moment
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


FIGURES = {
    "ettr": 0.5, "queued_ns": 400 * SECOND, "scheduling_goodput": 1000 / 1400,
    "runtime_goodput": 0.7, "program_goodput": 0.4, "program_goodput_by": "tensor_activity",
    "overall_goodput": 0.2, "unknown": [], "devices": 8, "devices_by": "accelerators",
    "device_hours": {"productive": 1.5556, "stall": 0.6667}, "counted_device_hours": 2.2222,
    "price_per_device_hour": None, "cost": None, "counted_cost": None,
}  # fmt: skip
PRICED = {
    "price_per_device_hour": 2.5, "cost": {"productive": 3.889, "stall": 1.667},
    "counted_cost": 5.556,
}  # fmt: skip


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
                "hang_ns": 121 * SECOND, "warm_up_ns": None, "cost_ns": 181 * SECOND,
            }
        ],
        "figures": FIGURES,
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
    assert "11 min 40 s of 16 min 40 s counted were productive" in text
    assert "of which up to 12.0 s inferred" in text
    assert "rank 3 was the last to begin 700 steps: others waited 1 min 30 s for it" in text
    assert "hung; rank 3 killed by SIGKILL" in text
    assert "hang 2 min 01 s + lost work 1 min 00 s + not back yet" in text
    assert re.search(r"120 +3 min 01 s +hung", text)
    assert re.search(r"MTBF +15 min 00 s +mean time between failures", text)
    assert re.search(r"MTTR +30.0 s +mean time to recovery", text)
    assert "hang or stall" not in text  # no time went there
    bar = next(line for line in text.splitlines() if line.startswith("█" * 20))
    assert bar == "█" * 90 + "×" * 30


def test_what_there_is_not_is_not_said() -> None:
    quiet = seen(80, disruptions=[], ranks=[], inferred_ns=0, goodput=None, over_time=[], spent=[
        {"name": "productive", "ns": 0, "share": 0.0},
        {"name": "excluded", "ns": SECOND, "share": 0.0},
    ], figures=None)  # fmt: skip
    text = "\n".join(quiet)
    assert "no time is counted" in text
    assert "1.0 s  not counted" in text
    for word in ("inferred", "waited", "failures", "disrupted", "MTBF", "ETTR", "%", "cost"):
        assert word not in text


def test_shares_are_of_what_is_counted_and_what_is_excluded_has_none() -> None:
    spent = {"productive": 600, "stall": 200, "excluded": 9000}
    listed = [{"name": n, "ns": s * SECOND, "share": 0.0} for n, s in spent.items()]
    lines = [line for line in seen(80, spent=listed) if line[:1] in "█! "]
    assert any(re.search(r"productive steps +10 min 00 s +75.0 %", line) for line in lines)
    assert any(re.search(r"hang or stall +3 min 20 s +25.0 %", line) for line in lines)
    [excluded] = [line for line in lines if "excluded" in line]
    assert excluded.rstrip().endswith("2 h 30 min  not counted")


def test_what_a_disruption_cost() -> None:
    [found] = answer()["disruptions"]
    back = {"recovery_ns": 20 * SECOND, "back_ns": 26 * SECOND}
    text = "\n".join(seen(160, disruptions=[found | back | {"warm_up_ns": 9 * SECOND}]))
    assert "hang 2 min 01 s + lost work 1 min 00 s + recovery 20.0 s + warm-up 9.0 s" in text
    text = "\n".join(seen(160, disruptions=[found | back | {"hang_ns": 0, "wasted_ns": 0}]))
    assert re.search(r"\n +recovery 20.0 s \+ warm-up 6.0 s", text)
    begun = {"recovery_ns": 20 * SECOND}
    assert "recovery 20.0 s + no step yet" in "\n".join(seen(160, disruptions=[found | begun]))


def test_the_figures_beside_it() -> None:
    text = "\n".join(seen(120))
    assert re.search(
        r"ETTR +50.0 % +productive, of 23 min 20 s since it was submitted; 6 min 40 s in the queue",
        text,
    )
    assert re.search(
        r"overall goodput +20.0 % +scheduling 71.4 % × runtime 70.0 % × program 40.0 % "
        r"\(tensor activity\)",
        text,
    )
    assert re.search(r"device-hours +2.22 +counted; 1.56 were productive, on 8 accelerators", text)
    assert "per device-hour" not in text
    priced = "\n".join(seen(120, figures=FIGURES | PRICED))
    assert re.search(r"cost +5.56 +1.67 of it not productive; 2.5 per device-hour", priced)


def test_what_is_not_known_is_named() -> None:
    some = FIGURES | {
        "queued_ns": None, "scheduling_goodput": None, "program_goodput": None,
        "program_goodput_by": "", "unknown": ["scheduling", "program"], "devices": 1,
        "devices_by": "ranks",
    }  # fmt: skip
    text = "\n".join(seen(120, figures=some))
    assert "of 16 min 40 s since it began; queue unknown" in text
    assert "runtime 70.0 %; scheduling and program unknown" in text
    assert "on 1 rank" in text


@pytest.mark.parametrize(
    ("hours", "text"),
    [(0, "0"), (1e-6, "< 0.0001"), (0.00776, "0.0078"), (1.23456, "1.23"), (12345.6, "12,346")],
)
def test_hours_are_never_rounded_to_nothing(hours: float, text: str) -> None:
    assert goodput_picture.amount(hours) == text


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
    assert "30.0 s of 35.0 s counted were productive" in said.out
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
        (["goodput"], 2, "name a run"),
        (["goodput", "nope"], 1, "'nope'"),
        (["goodput", "job", "--since", "soon"], 2, "not a time: 'soon'"),
        (["goodput", "job", "--since", "99m"], 2, "nothing of the run lies in this window"),
        (["goodput", "job", "--since", "20s", "--until", "10s"], 2, "is after until"),
        (["goodput", "job", "--exclude", "10s"], 2, "--exclude FROM/TO"),
        (["goodput", "job", "--exclude", "20s/10s"], 2, "ends before it begins"),
        (["goodput", "job", "--buckets", "0"], 2, "buckets"),
        (["goodput", "--import", "/nowhere/log.jsonl"], 1, "/nowhere/log.jsonl"),
        (["goodput", "--import", "cloud-logging"], 2, "--job"),
        (["goodput", "job", "--group", "g"], 2, "RUN does not go with"),
        (["goodput", "--user", "ada", "--watch"], 2, "are for one run"),
        (["goodput", "--since", "7d"], 2, "write -7d"),
        (["goodput", "job", "--price", "-1"], 2, "price_per_device_hour is -1.0"),
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


# ── several runs ───────────────────────────────────────────────────────────────────────────────


def rolled(name: str, **changed: Any) -> dict[str, Any]:
    found = {
        "run": name, "name": name, "group": "", "user": "", "state": "completed",
        "start_ns": START, "end_ns": END, "goodput": 0.5, "ettr": None, "disruptions": 0,
        "devices": 8, "devices_by": "ranks", "device_hours": {}, "counted_device_hours": 12.3456,
        "counted_cost": None,
    }  # fmt: skip
    return found | changed


def several(width: int = 80, **changed: Any) -> str:
    found: dict[str, Any] = {
        "runs": [rolled("llama", user="ada", disruptions=3), rolled("bert")], "total": 2,
        "goodput": 0.75, "disruptions": 3, "counted_device_hours": 2000.0,
        "device_hours": {"productive": 1500.0, "stall": 500.0, "excluded": 7.0},
        "price_per_device_hour": None, "cost": None, "counted_cost": None,
    }  # fmt: skip
    out = Console(width=width, file=io.StringIO(), color_system=None)
    out.print(rollup_picture.together(found | changed, "of group sweep", width))
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return "\n".join(lines)


def test_runs_together() -> None:
    text = several()
    assert "2 runs of group sweep" in text
    assert "goodput: 1,500 of 2,000 device-hours counted" in text
    assert "3 disruptions" in text
    assert re.search(r"llama +ada +8 +12.3 +50.0 % +– +3", text)
    assert re.search(r"bert +– +8 +12.3 +50.0 % +– +–", text)
    assert re.search(r"hang or stall +500 h +25.0 %", text)
    assert re.search(r"excluded +7 h +not counted", text)
    assert "cost" not in text
    assert "older runs" not in text


def test_runs_together_with_a_price_and_with_too_many() -> None:
    priced = several(
        total=202, runs=[rolled("llama", counted_cost=30.864)], price_per_device_hour=2.5,
        cost={"productive": 3750.0}, counted_cost=5000.0,
    )  # fmt: skip
    assert re.search(r"llama .* 30.86", priced)
    assert re.search(r"cost +5,000.00 +1,250.00 of it not productive; 2.5 per device-hour", priced)
    assert "201 older runs are not counted here" in priced
    assert several(runs=[]) == "no runs of group sweep"


def test_a_group_is_asked_for_and_shown(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--dir", str(tmp_path / "runwatch")]
    assert main(["goodput", "--import", str(log), *where]) == 0
    capsys.readouterr()
    since = ["--since", "2023-01-01", "--until", "2023-11-14T22:13:35Z", "--price", "3600"]
    assert main(["goodput", *since, "--json", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in found["runs"]] == ["my job"]
    assert (found["counted_cost"], found["goodput"]) == (pytest.approx(15), pytest.approx(10 / 15))
    assert main(["goodput", *since, *where]) == 0
    assert "1 run since 2023-01-01" in capsys.readouterr().out
    assert main(["goodput", "--since", "-1d", *where]) == 0
    assert "no runs since -1d" in capsys.readouterr().out


def test_the_price_comes_from_the_environment(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--dir", str(tmp_path / "runwatch"), "--json"]
    monkeypatch.setenv("RUNWATCH_PRICE_PER_DEVICE_HOUR", "36")
    assert main(["goodput", "--import", str(log), *where]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert figures["counted_cost"] == pytest.approx(0.35)


# ── journals that nobody has stored ────────────────────────────────────────────────────────────


def test_of_much_that_is_not_stored_goodput_stores_nothing(
    tmp_path: Path,
    log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And the answer is the same; of little, or for whoever follows a run, it is stored."""
    root = tmp_path / "told"
    assert main(["goodput", "--import", str(log), "--dir", str(root)]) == 0
    shutil.rmtree(root / "store")
    asked = ["goodput", "my job", "--dir", str(root)]
    answers = []
    for much, stores in ((1, False), (source.MUCH_BYTES, True)):
        monkeypatch.setattr(source, "MUCH_BYTES", much)
        for more in (["--json"], ["--explain", "1s"], ["--buckets", "4"]):
            capsys.readouterr()
            assert main([*asked, *more]) == 0
            answers.append(capsys.readouterr().out)
        assert (root / "store").exists() == stores
    assert answers[:3] == answers[3:]
    shutil.rmtree(root / "store")
    monkeypatch.setattr(source, "MUCH_BYTES", 1)
    assert main([*asked, "--watch"]) == 0
    assert (root / "store").exists()
