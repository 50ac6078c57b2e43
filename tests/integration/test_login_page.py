"""The way into a real head, in a real browser: login, logout, and a link for looking only."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from runwatch.address import Listening
from runwatch.store.duck.engine import DuckStore
from tests.integration.chromium import NO_BROWSER, PROGRAM, Chromium, Page
from tests.integration.head_history import Producer, fill, when
from tests.integration.processes import Cluster

pytestmark = [
    pytest.mark.skipif(not PROGRAM, reason=NO_BROWSER),
    pytest.mark.xdist_group("chromium"),
]
TOKEN = "a word that nobody knows"


class Guarded(Cluster):
    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"RUNWATCH_TOKEN": TOKEN}


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """Under a prefix, as behind a proxy; other tests see to the rest."""
    cluster = Guarded(tmp_path_factory.mktemp("cluster"))
    store = DuckStore.open(cluster.head_root / "store")
    fill(store)
    Producer(store, "odd", run="run 7/ä", name="odd", start_ns=when(1)).write([("loss", 2, 1, 1.0)])
    store.close()
    try:
        yield cluster.start_head("--base-path", "/team/x")
    finally:
        cluster.close()


@pytest.fixture
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


def ask(head: Listening, path: str, body: dict[str, Any] | None = None, method: str = "") -> Any:
    request = urllib.request.Request(
        f"{head.http}/api/v1/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {TOKEN}"},
        method=method or None,
    )
    with urllib.request.urlopen(request, timeout=100) as answer:
        return json.load(answer)


def enter(page: Page, token: str) -> None:
    page.until("document.activeElement?.id === 'token'")  # the focus comes by itself
    page.evaluate(f"document.getElementById('token').value = {json.dumps(token)}")
    page.evaluate("document.querySelector('#in button').click()")


def level(page: Page) -> Any:
    where = json.dumps(f"{urlsplit(page.evaluate('location.href')).path}api/v1/access")
    return page.evaluate(f"fetch({where}).then(r => r.json())")


def complaints(page: Page) -> list[str]:
    """Browsers note every 401; that one is meant."""
    return [words for words in page.words() if "401" not in words]


def test_login_and_logout(head: Listening, browser: Chromium) -> None:
    with browser.open(f"{head.http}/#/run/run-1?tab=timeline") as page:
        enter(page, "wrong")
        page.until("document.getElementById('said')?.textContent.includes('does not know')")
        assert page.evaluate("document.querySelector('[role=alert]').checkVisibility()")
        assert complaints(page) == []
        enter(page, TOKEN)
        page.until("!document.getElementById('token') && document.readyState == 'complete'")
        assert page.evaluate("location.href") == f"{head.http}/#/run/run-1?tab=timeline"
        assert level(page)["level"] == "full"
        assert page.evaluate("document.cookie") == ""
        page.evaluate("fetch('logout', {method: 'POST'}).then(() => location.reload())")
        page.until("!!document.getElementById('token')")
        here = urlsplit(head.http).netloc
        assert {urlsplit(url).netloc for url in page.loaded()} <= {here, ""}


def test_one_comes_to_where_one_wanted(head: Listening, browser: Chromium) -> None:
    with browser.open(f"{head.http}/api/v1/runs?limit=1") as page:
        enter(page, TOKEN)
        page.until("document.body && document.body.innerText.includes('\"total\"')")
        assert page.evaluate("location.href") == f"{head.http}/api/v1/runs?limit=1"


@pytest.mark.parametrize("run", ["run-1", "run 7/ä"])
def test_a_link_for_looking_only(head: Listening, browser: Chromium, run: str) -> None:
    made = ask(head, "shares", {"run": run, "note": "for the browser"})
    with browser.open(made["link"]) as page:
        page.until("location.hash && document.readyState == 'complete'")
        page.until("!location.search")
        assert page.evaluate("location.href").startswith(f"{head.http}/#/run/run")
        assert made["token"] not in page.evaluate("location.href")
        found = level(page)
        assert (found["level"], found["run"]) == ("read", run)
        refused = "fetch('api/v1/sessions', {method: 'POST'}).then(r => r.status)"
        assert page.evaluate(refused) == 403
        assert page.evaluate("fetch('api/v1/runs/run-2').then(r => r.status)") == 404
        ask(head, f"shares/{made['id']}", method="DELETE")
        assert page.evaluate("fetch('api/v1/runs').then(r => r.status)") == 401
        page.evaluate("location.reload()")
        page.until("document.body.innerText.includes('expired or was taken back')")
        page.evaluate("document.querySelector('#out button').click()")
        page.until("!document.body.innerText.includes('taken back')")
        page.until("!!document.getElementById('token')")


def test_a_live_stream_ends_with_its_link(head: Listening) -> None:
    made = ask(head, "shares", {"run": "run-1"})
    request = urllib.request.Request(
        f"{head.http}/api/v1/live", headers={"Authorization": f"Bearer {made['token']}"}
    )
    with urllib.request.urlopen(request, timeout=100) as stream:
        assert stream.readline().startswith(b"id:")
        assert stream.readline() == b"event: hello\n"
        assert b'"run":"run-1"' in stream.readline()
        ask(head, f"shares/{made['id']}", method="DELETE")
        assert stream.read() in (b"", b"\n")  # at once: it would be silent for 15 s otherwise


def test_it_can_be_read_by_everyone(head: Listening, browser: Chromium, tmp_path: Path) -> None:
    with browser.open(f"{head.http}/") as page:
        page.until("!!document.getElementById('token')")
        shown = page.evaluate("document.querySelector('label[for=token]').innerText")
        assert shown == "Token" and page.evaluate("document.documentElement.lang") == "en"
        grounds = []
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            page.ask("Emulation.setEmulatedMedia", features=features)
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(set(grounds)) == 2
        page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=320, height=640, deviceScaleFactor=1, mobile=True,
        )  # fmt: skip
        page.until("document.documentElement.clientWidth <= 320")  # it has its new size
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
