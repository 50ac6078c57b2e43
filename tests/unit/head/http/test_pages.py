"""How the page reaches a browser: whole, kept where that is right, and with a strict policy."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette

from runwatch.head.http.pages import Pages

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

SCRIPT = b"export const page = 1;\n" * 200


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "index-abc.js").write_bytes(SCRIPT)
    (tmp_path / "index.html").write_text("<!doctype html><title>Runwatch</title>")
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "built-from.txt").write_text("0")
    return tmp_path


def client_of(built: Path) -> TestClient:
    pages = Pages(built)
    routes = pages.routes()
    return TestClient(Starlette(routes=routes), headers={"Accept": "text/html"})


@pytest.fixture
def client(built: Path) -> Iterator[TestClient]:
    with client_of(built) as opened:
        yield opened


def test_what_is_named_by_its_content_is_kept_for_ever(client: TestClient) -> None:
    reply = client.get("/assets/index-abc.js")
    assert reply.content == SCRIPT
    assert reply.headers["content-type"].startswith("text/javascript")
    assert "immutable" in reply.headers["cache-control"]
    assert client.get("/icon.svg").headers["cache-control"] == "no-cache"


def test_the_rest_is_asked_for_again_and_answered_briefly(client: TestClient) -> None:
    first = client.get("/")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_large_files_travel_packed_if_that_is_understood(client: TestClient) -> None:
    with client.stream("GET", "/assets/index-abc.js") as reply:
        raw = b"".join(reply.iter_raw())
    assert reply.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == SCRIPT and len(raw) < len(SCRIPT)
    plain = client.get("/assets/index-abc.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == SCRIPT


def test_the_policy_lets_nothing_in_from_elsewhere(client: TestClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "http" not in policy


@pytest.mark.parametrize(
    "path", ["/assets/other.js", "/assets/..%2findex.html", "/built-from.txt", "/index.html"]
)
def test_nothing_else_is_there(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_an_installation_without_a_page_says_what_to_do(tmp_path: Path) -> None:
    with client_of(tmp_path / "none") as client:
        reply = client.get("/")
    assert reply.status_code == 200 and "make web" in reply.text
