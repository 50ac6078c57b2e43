"""Tables at any width: names and ids stay whole, so that they can be copied."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from runwatch.cli.commands.runs import print_runs
from runwatch.cli.pictures import moments, tables
from runwatch.cli.pictures.plain import Plain
from runwatch.cli.pictures.table import Table

LONG = "an-experiment-with-a-long-name-lr3e-4-batch512-seed7"


def drawn(table: Table, width: int) -> list[str]:
    out = io.StringIO()
    Plain(file=out, width=width, force_terminal=True, color_system=None).print(table)
    return out.getvalue().splitlines()


def runs(*names: str) -> list[dict[str, object]]:
    return [
        {
            "name": name, "run": f"{name}-1f2e3d4c", "state": "running", "attempts": 2,
            "last_step": 12_345, "headline": {"metric": "loss", "value": 0.123456},
            "started_ns": 1_700_000_000 * 10**9, "ended_ns": None,
            "last_ns": 1_700_003_600 * 10**9, "reason": "",
        }
        for name in names
    ]  # fmt: skip


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_ids_are_whole_at_every_width(width: int) -> None:
    table = tables.table("run", "state", "host", "why", fold="why")
    for name in (LONG, "short", "ジョブ" * 12):
        table.add_row(f"{name} ({name}-1f2e)", tables.state("running"), "gpu-17", "it " * 30)
    said = "\n".join(drawn(table, width))
    for name in (LONG, "short", "ジョブ" * 12):
        assert f"{name} ({name}-1f2e)" in said
    assert "…" not in said


def test_what_fits_is_a_plain_table_and_no_line_is_too_long() -> None:
    table = tables.table("run", "steps", "why", right=("steps",), fold="why")
    table.add_row("one", "5", "")
    table.add_row("another", "12,345", "because of this and that")
    assert drawn(table, 80) == [
        "run       steps  why",
        "one           5",
        "another  12,345  because of this and that",
    ]
    narrow = drawn(table, 33)
    assert narrow[2:] == ["another  12,345  because of this", "                 and that"]
    assert max(map(cell_len, narrow)) <= 33


def test_a_long_name_has_a_line_of_its_own() -> None:
    table = tables.table("run", "state", "attempts")
    table.add_row("short", "running", "1")
    table.add_row(LONG, "running", "2")
    lines = drawn(table, 40)
    assert lines[1].startswith("short ")
    assert lines[2] == LONG
    assert lines[3].split() == ["running", "2"]
    assert lines[3].index("running") == lines[1].index("running")


def test_a_pipe_has_no_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_runs(runs(LONG, "short"))
    header, first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{LONG} ({LONG}-1f2e3d4c)  ")
    assert header.index("state") == second.index("▶")


def test_the_zone_is_the_terminals_and_is_named_once(
    berlin: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert moments.zone() == "CET/CEST"
    print_runs(runs("a", "b"))
    said = capsys.readouterr().out
    assert said.count("CET/CEST") == 1
    assert said.count("2023-11-14 23:13:20") == 2  # 22:13:20 UTC


def test_control_characters_and_styles_stay_harmless() -> None:
    table = tables.table("name", "what")
    table.add_row("\x1b[31mred[/] :smile:", "x\ny")
    said = "\n".join(drawn(table, 80))
    assert "␛[31mred[/] :smile:" in said
    assert not re.search("\x1b", said)
