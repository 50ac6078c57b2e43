from __future__ import annotations

import time

import pytest

from runwatch.cli.pictures.moments import local_times


def test_times_in_sentences_are_in_this_terminals_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        said = "rank 2 killed by SIGKILL at 2023-11-14T22:13:20Z"
        assert local_times(said) == "rank 2 killed by SIGKILL at 2023-11-15 03:43:20"
        for other in ("", "no time", "2023-99-14T22:13:20Z", "2023-11-14T22:13:20.5Z"):
            assert local_times(other) == other
    finally:
        monkeypatch.undo()
        time.tzset()
