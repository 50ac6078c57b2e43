from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runwatch.cli.__main__ import main
from runwatch.cli.commands.capture import ranks_of
from runwatch.errors import UsageError


def test_ranks() -> None:
    assert ranks_of("3") == [3]
    assert ranks_of("8, 0-3,2") == [0, 1, 2, 3, 8]


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1-2-3", "0-999999999", "1,,2", "9" * 30])
def test_what_are_no_ranks(text: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        ranks_of(text)


def test_who_cannot_be_shown_the_answer_hears_of_it_before_the_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.delitem(sys.modules, "rich.console", raising=False)
    monkeypatch.delitem(sys.modules, "runwatch.cli.pictures.plain", raising=False)
    assert main(["capture", "nobody", "--dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "needs rich" in said and "--json" in said
