"""The flame graph viewer's files, and nothing else."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from runwatch.errors import NotFound, UsageError
from runwatch.head.features.stacks.speedscope import BASE, Speedscope

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient


async def _said(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 404 if isinstance(error, NotFound) else 422)


def client(folder: Path) -> TestClient:
    routes = Speedscope(folder).routes()
    handlers = {NotFound: _said, UsageError: _said}
    return TestClient(Starlette(routes=routes, exception_handlers=handlers))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.js").write_text("no")
    viewer = tmp_path / "viewer"
    viewer.mkdir()
    for name in ("index.html", "speedscope-ABC.js", "odd.bin"):
        (viewer / name).write_text(name)
    (viewer / "inner").mkdir()
    (viewer / "inner" / "deep.js").write_text("deep")
    return viewer


def test_it_serves_its_files_and_lets_them_reach_no_other_host(folder: Path) -> None:
    browser = client(folder)
    front = browser.get(f"{BASE}/")
    assert front.text == "index.html" and front.headers["cache-control"] == "no-cache"
    policy = front.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    script = browser.get(f"{BASE}/speedscope-ABC.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in script.headers["cache-control"]
    assert browser.get(BASE, follow_redirects=False).headers["location"] == "speedscope/"


@pytest.mark.parametrize(
    "name", ["nothing.js", "odd.bin", "..%2fsecret.js", "inner%2fdeep.js", "%2e%2e", "inner"]
)
def test_it_serves_nothing_else(folder: Path, name: str) -> None:
    assert client(folder).get(f"{BASE}/{name}").status_code == 404


def test_without_a_page_it_says_what_is_missing(tmp_path: Path) -> None:
    reply = client(tmp_path).get(f"{BASE}/")
    assert reply.status_code == 422 and "make web" in reply.text
