"""Who gets in, by what, and how far: the token, the login page, and links for looking only."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.cli.__main__ import main
from runwatch.errors import UsageError
from runwatch.head.access.guesses import BURST
from runwatch.head.access.shares import Shares
from runwatch.head.http.access import AccessSettings
from runwatch.store.duck.engine import DuckStore
from runwatch.store.store import Store
from runwatch.testing import FakeClock
from tests.apps import app_of
from tests.integration.head_history import (
    Producer,
    fill,
    when,
)

with warnings.catch_warnings():  # it would rather have another client library
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

TOKEN = "correct-horse"
OWNER = {"Authorization": f"Bearer {TOKEN}"}
PAGE = {"Accept": "text/html,application/xhtml+xml"}
DAY = 86_400 * 10**9


@pytest.fixture(scope="module")
def filled() -> Iterator[Store]:
    opened = DuckStore.open(None)
    fill(opened)
    yield opened
    opened.close()


class Site:
    """A head with a directory of its own, and browsers that share nothing."""

    def __init__(self, store: Store, root: Path, **access: Any) -> None:
        self.clock = FakeClock(when(120))
        self._store, self._root = store, root
        self._access = AccessSettings(**access)
        self.base_url = "http://gpu-17:8091" if access.get("token") else "http://localhost:8091"
        self._app = self._made()

    def _made(self) -> Any:
        return app_of(
            self._store,
            clock=self.clock,
            access=self._access,
            shares=Shares(self._root / "shares.json", clock=self.clock),
            serving={"base_path": self._access.base_path},
        )

    def restart(self) -> None:
        self._app = self._made()

    def browser(self, **headers: str) -> TestClient:
        return TestClient(
            self._app, base_url=self.base_url, headers=headers, follow_redirects=False
        )

    def share(self, **asked: Any) -> dict[str, Any]:
        reply = self.browser(**OWNER).post("/api/v1/shares", json=asked)
        assert reply.status_code == 200, reply.text
        made: dict[str, Any] = reply.json()
        return made

    def guest(self, **asked: Any) -> TestClient:
        return self.browser(Authorization=f"Bearer {self.share(**asked)['token']}")


@pytest.fixture
def site(filled: Store, tmp_path: Path) -> Site:
    return Site(filled, tmp_path, token=TOKEN, loopback=False)


@pytest.fixture
def open_site(filled: Store, tmp_path: Path) -> Site:
    return Site(filled, tmp_path)


def code(reply: Any) -> str:
    return str(reply.json()["error"]["code"])


# ── login ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/", "/viewers/", "/assets/x.js", "/api/v1/runs", "/nowhere"])
def test_a_person_without_a_token_is_asked_for_it(site: Site, path: str) -> None:
    reply = site.browser(**PAGE).get(path)
    assert reply.status_code == 401
    assert reply.headers["content-type"].startswith("text/html")
    assert '<form id="in" method="post"' in reply.text
    assert f'name="next" value="{path}"' in reply.text
    assert "llama" not in reply.text


def test_a_program_without_a_token_is_told_so_in_json(site: Site) -> None:
    reply = site.browser().get("/api/v1/runs")
    assert (reply.status_code, code(reply)) == (401, "token_needed")


def test_login_and_logout(site: Site) -> None:
    person = site.browser(**PAGE)
    form = {"token": f" {TOKEN} ", "next": "/api/v1/runs?limit=2"}
    reply = person.post("/login", data=form, headers={"Origin": site.base_url})
    assert (reply.status_code, reply.headers["location"]) == (303, "./api/v1/runs?limit=2")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/;" in cookie
    assert TOKEN not in cookie
    assert len(person.get("/api/v1/runs?limit=2").json()["runs"]) == 2
    assert person.get("/api/v1/access").json() == {
        "level": "full", "role": "admin", "run": None, "projects": [], "expires_ns": None,
        "note": "", "link": False, "login": True,
    }  # fmt: skip
    assert person.post("/logout").headers["location"] == "./"
    assert person.get("/api/v1/runs").status_code == 401


def test_a_wrong_token_is_told_and_nothing_is_kept(site: Site) -> None:
    reply = site.browser(**PAGE).post("/login", data={"token": "wrong", "next": "/x?y=1"})
    assert reply.status_code == 401 and "set-cookie" not in reply.headers
    assert "This head does not know that token." in reply.text
    assert 'value="/x?y=1"' in reply.text and 'action="./login"' in reply.text


def test_other_pages_can_neither_log_in_nor_out(site: Site) -> None:
    foreign = {"Origin": "http://evil.example"}
    for path in ("/login", "/logout"):
        reply = site.browser(**PAGE).post(path, data={"token": TOKEN}, headers=foreign)
        assert (reply.status_code, code(reply)) == (403, "cross_origin")


def test_the_doors_other_methods(site: Site) -> None:
    assert site.browser().get("/login").status_code == 200
    assert site.browser().get("/logout").status_code == 405
    assert site.browser().delete("/login").status_code == 405
    assert site.browser().post("/login", content=b"\xff").status_code == 400


def test_who_guesses_is_braked_in_every_way_in(site: Site) -> None:
    for i in range(BURST):
        assert site.browser().get(f"/api/v1/runs?token=guess-{i}").status_code == 401
    for reply in (
        site.browser(Authorization="Bearer guess").get("/api/v1/runs"),
        site.browser().get("/api/v1/runs", params={"token": "guess"}),
        site.browser(**PAGE).post("/login", data={"token": "guess"}),
    ):
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) > 0
        assert "set-cookie" not in reply.headers
    site.clock.now_ns += 10 * 10**9
    assert site.browser(Authorization="Bearer guess").get("/api/v1/runs").status_code == 401


def test_a_neighbours_guesses_do_not_lock_the_owner_out(site: Site) -> None:
    for i in range(BURST * 3):
        site.browser(Authorization=f"Bearer guess-{i}").get("/api/v1/runs")
    assert site.browser(**OWNER).get("/api/v1/runs").status_code == 200
    assert site.browser().get("/api/v1/runs", params={"token": TOKEN}).status_code == 200
    reply = site.browser(**PAGE).post("/login", data={"token": TOKEN})
    assert reply.status_code == 303 and "set-cookie" in reply.headers


def test_who_is_in_is_not_braked(site: Site) -> None:
    person = site.browser()
    person.post("/login", data={"token": TOKEN})
    for _ in range(BURST + 5):
        site.browser(Authorization="Bearer wrong").get("/api/v1/runs")
    assert site.browser(Authorization="Bearer wrong").get("/api/v1/runs").status_code == 429
    assert person.get("/api/v1/runs").status_code == 200


def test_a_token_in_a_pages_address_leaves_it(site: Site) -> None:
    person = site.browser(**PAGE)
    reply = person.get("/viewers/?x=1", params={"token": TOKEN, "y": "2"})
    assert reply.status_code == 303
    assert TOKEN not in reply.headers["location"] and reply.headers["location"] == "./?y=2"
    assert person.get("/").status_code == 200


def test_under_a_prefix_everything_stays_there(filled: Store, tmp_path: Path) -> None:
    site = Site(filled, tmp_path, token=TOKEN, loopback=False, base_path="/team/x")
    person = site.browser(**PAGE)
    reply = person.get("/team/x/viewers/trace?run=a")
    assert 'action="../login"' in reply.text and 'value="/viewers/trace?run=a"' in reply.text
    reply = person.post("/team/x/login", data={"token": TOKEN, "next": "/viewers/"})
    assert "Path=/team/x;" in reply.headers["set-cookie"]
    assert reply.headers["location"] == "./viewers/"
    assert person.get("/team/x/").status_code == 200
    assert person.get("/").status_code == 401
    link = person.post("/team/x/api/v1/shares", json={"run": "run-1"}).json()["link"]
    assert re.fullmatch(r"http://gpu-17:8091/team/x/\?token=rws_[\w-]+#/run/run-1", link)


# ── links ──────────────────────────────────────────────────────────────────────────────────────


def test_a_link_is_made_listed_and_taken_back(site: Site) -> None:
    made = site.share(run="bert", days=2, note="for Ada")
    now = site.clock.now_ns
    assert (made["run"], made["run_name"], made["note"]) == ("run-2", "bert", "for Ada")
    assert (made["created_ns"], made["expires_ns"]) == (now, now + 2 * DAY)
    assert made["path"] == f"?token={made['token']}#/run/run-2"
    assert made["link"] == f"http://gpu-17:8091/{made['path']}"
    owner = site.browser(**OWNER)
    (listed,) = owner.get("/api/v1/shares").json()["shares"]
    assert listed["id"] == made["id"] and listed["used_ns"] is None
    assert made["token"] not in json.dumps(listed)
    guest = site.browser(Authorization=f"Bearer {made['token']}")
    assert guest.get("/api/v1/runs/run-2").status_code == 200
    assert owner.get("/api/v1/shares").json()["shares"][0]["used_ns"] == now
    assert owner.delete(f"/api/v1/shares/{made['id']}").json() == {"id": made["id"]}
    reply = guest.get("/api/v1/runs/run-2")
    assert (reply.status_code, code(reply)) == (401, "link_ended")
    assert owner.delete(f"/api/v1/shares/{made['id']}").status_code == 404


def test_a_link_in_a_browser(site: Site) -> None:
    made = site.share(run="run-1", days=1)
    person = site.browser(**PAGE)
    reply = person.get("/" + made["path"].partition("#")[0])
    assert (reply.status_code, reply.headers["location"]) == (303, "./")
    cookie = reply.headers["set-cookie"]
    assert made["token"] not in cookie and f"Max-Age={86_400}" in cookie
    assert person.get("/").status_code == 200
    told = person.get("/api/v1/access").json()
    assert (told["level"], told["run"], told["expires_ns"]) == ("read", "run-1", made["expires_ns"])
    assert person.post("/logout", headers={"Accept": "*/*"}).json() == {"level": "none"}
    assert person.get("/api/v1/access").status_code == 401


def test_a_link_survives_a_restart_and_expires(site: Site) -> None:
    made = site.share(days=1)
    site.restart()
    guest = site.browser(Authorization=f"Bearer {made['token']}")
    assert guest.get("/api/v1/runs").json()["total"] == 5
    site.clock.now_ns += DAY
    assert guest.get("/api/v1/runs").status_code == 401


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"run": "nobody"}, 404),
        ({"run": "twin"}, 409),
        ({"days": 0}, 422),
        ({"days": 99999}, 422),
        ({"note": "x" * 201}, 422),
        ({"days": "x"}, 400),
        ({"day": 1}, 400),
    ],
)
def test_links_that_cannot_be_made(site: Site, asked: dict[str, Any], status: int) -> None:
    assert site.browser(**OWNER).post("/api/v1/shares", json=asked).status_code == status


@pytest.mark.parametrize("asked", [{}, {"run": "run-1"}])
def test_a_guest_changes_nothing(site: Site, asked: dict[str, Any]) -> None:
    guest = site.guest(**asked)
    document = site.browser(**OWNER).get("/api/v1/openapi.json").json()
    tried = [
        (method.upper(), path.format(run="run-1", session="s", id="1", name="x"))
        for path, operations in document["paths"].items()
        for method in operations
        if method != "get"
    ]
    assert ("POST", "/api/v1/sessions") in tried and ("POST", "/api/v1/shares") in tried
    for method, path in [*tried, ("POST", "/profiling/start"), ("POST", "/profiling/stop")]:
        reply = guest.request(method, path)
        assert (reply.status_code, code(reply)) == (403, "read_only"), (method, path)
    assert guest.get("/api/v1/shares").status_code == 403
    assert site.browser(**OWNER).get("/api/v1/sessions").json()["sessions"] == []


def test_a_guest_of_all_runs_sees_what_there_is(site: Site) -> None:
    guest = site.guest()
    for path in ("runs", "runs/run-2/curves?metric=loss", "devices", "sessions", "profiles"):
        assert guest.get(f"/api/v1/{path}").status_code == 200
    assert guest.get("/metrics").status_code == 200
    assert guest.head("/api/v1/live").status_code == 200


def test_a_guest_of_one_run_sees_that_run(site: Site) -> None:
    guest = site.guest(run="run-2")
    listed = guest.get("/api/v1/runs").json()
    assert [run["run"] for run in listed["runs"]] == ["run-2"] and listed["total"] == 1
    for part in ("", "/configs", "/series", "/curves?metric=loss", "/events", "/goodput"):
        assert guest.get(f"/api/v1/runs/run-2{part}").status_code == 200
        assert guest.get(f"/api/v1/runs/bert{part}").status_code == 200  # its name
        for other in ("run-1", "llama", "run-3", "nobody"):
            reply = guest.get(f"/api/v1/runs/{other}{part}")
            assert (reply.status_code, code(reply)) == (404, "not_shared")
    assert guest.get("/api/v1/devices").status_code == 200
    assert guest.get("/api/v1/devices?run=run-1").status_code == 404
    assert guest.head("/api/v1/live?run=run-1").status_code == 404
    for path in ("/metrics", "/status", "/clients", "/api/v1/sessions", "/api/v1/profiles"):
        reply = guest.get(path)
        assert (reply.status_code, code(reply)) == (403, "not_shared")
    assert guest.get("/api/v1/health").json() == {"status": "ok"}


def test_devices_of_other_runs_are_not_shown(tmp_path: Path) -> None:
    store = DuckStore.open(None)
    try:
        site = Site(store, tmp_path, token=TOKEN, loopback=False)
        for number, host in ((1, "host-a"), (2, "host-b")):
            process = Producer(store, f"p{number}", run=f"run-{number}", host=host)
            process.write(events=[("run_start", 100, {})])
            agent = Producer(store, f"a{number}", run=f"run-{number}", host=host, role="agent")
            agent.write([("gpu_utilization_percent", 119, None, 50.0)], device="gpu0")
        assert len(site.browser(**OWNER).get("/api/v1/devices").json()["devices"]) == 2
        (device,) = site.guest(run="run-1").get("/api/v1/devices").json()["devices"]
        assert device["host"] == "host-a"
    finally:
        store.close()


# ── where nobody needs a token ─────────────────────────────────────────────────────────────────


def test_on_an_open_head_a_link_restricts_who_comes_by_it(open_site: Site) -> None:
    made = open_site.share(run="run-1")
    person = open_site.browser(**PAGE)
    assert person.get(f"/?token={made['token']}").status_code == 303
    assert person.get("/api/v1/access").json()["level"] == "read"
    assert person.get("/api/v1/runs/run-2").status_code == 404
    assert person.post("/api/v1/sessions").status_code == 403
    assert open_site.browser().get("/api/v1/access").json()["level"] == "full"
    assert open_site.browser().get("/api/v1/access").json()["login"] is False


def test_taking_a_link_back_opens_nothing(open_site: Site) -> None:
    made = open_site.share(run="run-1")
    person = open_site.browser(**PAGE)
    person.get(f"/?token={made['token']}")
    open_site.browser().delete(f"/api/v1/shares/{made['id']}")
    reply = person.get("/")
    assert reply.status_code == 401
    assert "This link has expired or was taken back" in reply.text
    assert "Forget my shared link" in reply.text and 'logout" hidden' not in reply.text
    assert open_site.browser(Authorization=f"Bearer {made['token']}").get("/").status_code == 401
    assert person.post("/logout").status_code == 303
    assert person.get("/").status_code == 200


def test_a_token_that_nobody_asks_for_does_not_matter(open_site: Site) -> None:
    for _ in range(BURST + 5):
        reply = open_site.browser(Authorization="Bearer whatever").get("/api/v1/runs")
        assert reply.status_code == 200


# ── the command ────────────────────────────────────────────────────────────────────────────────


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = DuckStore.open(tmp_path / "store")
    Producer(store, "p1", start_ns=when(0)).write(events=[("run_start", 1, {})])
    store.close()
    where = ["--dir", str(tmp_path)]
    assert main(["share", "llama", "--days", "2", "--note", "for Ada", *where]) == 0
    out = capsys.readouterr().out
    assert "shows llama, read-only" in out and "/?token=rws_" in out
    assert main(["share", "--list", "--json", *where]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["shares"]
    assert (listed["run"], listed["note"]) == ("run-1", "for Ada")
    assert main(["share", "--list", *where]) == 0
    assert listed["id"] in capsys.readouterr().out
    assert main(["share", "--revoke", listed["id"], *where]) == 0
    assert "no longer works" in capsys.readouterr().out
    assert main(["share", "--list", *where]) == 0
    assert "no links" in capsys.readouterr().out
    assert main(["share", "nobody", *where]) == 1
    assert main(["share", "--revoke", "x", *where]) == 1
    assert main(["share", *where]) == UsageError.exit_code
    assert main(["share", "llama", "--all", *where]) == UsageError.exit_code
