from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runwatch.cli.asgi import Exchange
from runwatch.errors import UsageError
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.head.settings import HeadSettings, ServingSettings, check_base_path


@pytest.mark.parametrize(
    ("said", "meant"), [("", ""), ("/", ""), ("/team/x", "/team/x"), ("team/x/", "/team/x")]
)
def test_spellings(said: str, meant: str) -> None:
    assert check_base_path(said) == meant == HeadSettings(base_path=said).base_path


@pytest.mark.parametrize("said", ["/a//b", "/a b", "/../x", "/ä", "http://x"])
def test_what_is_no_base_path(said: str) -> None:
    with pytest.raises(UsageError):
        check_base_path(said)


def test_with_and_without_the_prefix(tmp_path: Path) -> None:
    settings = LocalSettings(serving=ServingSettings(base_path="/team/x"))
    head, loop = LocalHead(tmp_path, settings=settings), asyncio.new_event_loop()

    def ask(path: str) -> int:
        answer = Exchange(head.app, loop, path)
        list(answer.body())
        return answer.status

    try:
        assert [ask(path) for path in ("/team/x/api/v1/runs", "/api/v1/runs")] == [200, 200]
        assert ask("/team/x") == 307
        assert [ask(path) for path in ("/team/xy/api/v1/runs", "/team/")] == [404, 404]
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        head.close()
