"""Profile sessions over the HTTP API, of a real store and real files, without a port."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import pickle
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runwatch.cli.asgi import Exchange
from runwatch.head.features.profiles.api import ProfilesApi
from runwatch.head.main import LocalHead, LocalSettings
from runwatch.head.settings import ServingSettings, ViewerSettings
from runwatch.testing import until
from tests.integration.head_history import SECOND, START, Producer

TRACES = Path(__file__).parents[4] / "fixtures" / "profiles"
AT_ONCE = LocalSettings(serving=ServingSettings(viewer=ViewerSettings(summarises_at_once=True)))


class Api:
    def __init__(self, root: Path, settings: LocalSettings | None = None) -> None:
        self.root = root
        self.head = LocalHead(root, settings=settings)
        self.loop = asyncio.new_event_loop()

    def ask(self, path: str, method: str = "") -> tuple[int, Any]:
        status, text = self.raw(path, method)
        return status, json.loads(text)

    def raw(self, path: str, method: str = "") -> tuple[int, bytes]:
        answer = Exchange(self.head.app, self.loop, path, None, method)
        return answer.status, b"".join(answer.body())

    def sessions(self, run: str = "") -> list[dict[str, Any]]:
        path = f"/api/v1/runs/{run}/profiles" if run else "/api/v1/profiles"
        status, answer = self.ask(path)
        assert status == 200, answer
        found: list[dict[str, Any]] = answer["profiles"]
        return found

    def summarised(self, run: str, session: str) -> dict[str, Any]:
        deadline = time.monotonic() + 100
        while True:
            status, answer = self.ask(f"/api/v1/profiles/{run}/{session}")
            assert status == 200 and time.monotonic() < deadline, answer
            if answer["summary_state"] != "waiting":
                found: dict[str, Any] = answer
                return found
            time.sleep(0.02)

    def close(self) -> None:
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.head.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path / "runwatch")
    yield made
    made.close()


def folder(place: Path, run: str = "llama", session: str = "s1") -> Path:
    made = place / run / "plugins" / "profile" / session
    made.mkdir(parents=True)
    return made


def drop(place: Path, run: str = "llama", session: str = "s1") -> Path:
    """A session that somebody put there by hand."""
    made = folder(place, run, session)
    shutil.copy(TRACES / "jax.xplane.pb", made / "gpu-17.xplane.pb")
    shutil.copy(TRACES / "torch.kineto.json.gz", made / "gpu-17.kineto.json.gz")
    return made


def ended(session: str, directory: Path | str, **more: Any) -> tuple[str, float, dict[str, Any]]:
    body = {"session": session, "state": "done", "framework": "jax", "bytes": 3,
            "files": ["gpu-17.xplane.pb"], "directory": str(directory), **more}  # fmt: skip
    return "profile", 2, body


def test_a_folder_dropped_in_by_hand(api: Api) -> None:
    assert api.sessions() == []
    drop(api.root / "profiles")
    (found,) = api.sessions()
    assert (found["run"], found["session"], found["state"]) == ("llama", "s1", "done")
    assert {f["name"]: f["kind"] for f in found["files"]} == {
        "gpu-17.xplane.pb": "xplane",
        "gpu-17.kineto.json.gz": "trace",
    }
    assert found["bytes"] == sum(f["bytes"] for f in found["files"]) > 10_000
    assert found["xprof"] == "viewers/xprof/data/plugin/profile/?run=llama%2Fs1"
    assert api.sessions("llama") == [found]
    assert api.ask("/api/v1/runs/other/profiles")[0] == 404


def test_a_session_that_processes_told_of(api: Api) -> None:
    lying = drop(api.root / "profiles", run="run-1")
    for rank in (0, 1):
        process = Producer(api.head.store, f"j{rank}", rank=rank, host=f"gpu-{rank}")
        process.write([], [ended("s1", lying, first_step=4, last_step=6)])
    (found,) = api.sessions("llama")
    assert (found["run"], found["run_name"]) == ("run-1", "llama")
    assert (found["hosts"], found["ranks"]) == (["gpu-0", "gpu-1"], [0, 1])
    assert (found["frameworks"], found["first_step"], found["last_step"]) == (["jax"], 4, 6)
    assert len(found["files"]) == 2
    status, detail = api.ask("/api/v1/profiles/llama/s1")
    assert (status, [part["rank"] for part in detail["parts"]]) == (200, [0, 1])


def test_a_session_elsewhere_on_this_machine(api: Api, tmp_path: Path) -> None:
    lying = drop(tmp_path / "elsewhere", run="any")
    Producer(api.head.store, "j").write([], [ended("s1", lying)])
    assert api.sessions()[0]["files"] == []  # anybody could have said so
    (api.root / "journals" / "j").mkdir(parents=True)
    (found,) = api.sessions()
    assert len(found["files"]) == 2
    status, body = api.raw("/api/v1/profiles/run-1/s1/files/gpu-17.xplane.pb")
    assert (status, body) == (200, (TRACES / "jax.xplane.pb").read_bytes())


def test_a_record_cannot_name_a_folder_that_is_none_of_a_session(api: Api) -> None:
    process = Producer(api.head.store, "j")
    elsewhere = ("/etc", "s3://b/plugins/profile/s1", "file://host/x", "relative", "/\0", "")
    for number, where in enumerate(elsewhere):
        process.write([], [ended(f"s{number}", where)])
    found = api.sessions()
    assert len(found) == len(elsewhere) and all(session["files"] == [] for session in found)
    assert api.ask("/api/v1/profiles/run-1/s0/files/passwd")[0] == 404


def test_a_capture_whose_process_is_gone(api: Api) -> None:
    process = Producer(api.head.store, "j")
    process.write([], [("profile", 1, {"session": "s1", "state": "started"})])
    process.write([], [("run_end", 2, {"status": "failed"})])
    (found,) = api.sessions()
    assert (found["state"], found["why"]) == ("failed", "rank 0: the process ended meanwhile")


def test_links_lead_nowhere_else(api: Api, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    lying = drop(api.root / "profiles")
    (lying / "out.json").symlink_to(secret)
    (lying / "in.json").symlink_to(lying / "gpu-17.kineto.json.gz")
    (lying / ".hidden.json").write_text("{}")
    outside = drop(tmp_path / "outside", session="s2")
    (lying.parent / "s2").symlink_to(outside)
    os.mkfifo(lying / "pipe.json")
    (found,) = api.sessions()
    names = {file["name"] for file in found["files"]}
    assert names == {"gpu-17.xplane.pb", "gpu-17.kineto.json.gz"}
    for name in ("in.json", "out.json", ".hidden.json", "pipe.json"):
        assert api.ask(f"/api/v1/profiles/llama/s1/files/{name}")[0] == 404


def test_traversal_is_refused(api: Api) -> None:
    drop(api.root / "profiles")
    (api.root / "token").write_text("secret")
    for path in (
        "llama/s1/files/..%2f..%2f..%2f..%2f..%2ftoken",
        "llama/s1/files/%2e%2e",
        "llama/..%2fs1",
        "llama/%2e%2e",
        "..%2fllama/s1",
        "llama/s1/files/%2fetc%2fpasswd",
        "llama/s1/files/none",
        "llama/s9",
    ):
        status, body = api.raw(f"/api/v1/profiles/{path}")
        assert status in (400, 404, 422) and b"secret" not in body, path


def test_deleting_needs_a_yes(api: Api) -> None:
    lying = drop(api.root / "profiles")
    assert api.ask("/api/v1/profiles/llama/s1", "DELETE")[0] == 400
    assert lying.is_dir()
    status, told = api.ask("/api/v1/profiles/llama/s1?yes=1", "DELETE")
    assert (status, told["files"]) == (200, 2)
    assert not lying.exists() and api.sessions() == []


def test_what_was_told_of_is_forgotten_for_good(tmp_path: Path) -> None:
    root = tmp_path / "runwatch"
    api = Api(root)
    try:
        lying = drop(root / "profiles", run="run-1")
        Producer(api.head.store, "j").write([], [ended("s1", lying)])
        assert api.ask("/api/v1/profiles/run-1/s1?yes=1", "DELETE")[0] == 200
        assert api.sessions() == []
    finally:
        api.close()
    api = Api(root)
    try:
        assert api.sessions() == []
    finally:
        api.close()


def test_a_capture_that_goes_on_is_not_deleted(api: Api) -> None:
    now = time.time() - START / SECOND
    going = [("profile", now, {"session": "s1", "state": "started"})]
    Producer(api.head.store, "j", start_ns=time.time_ns()).write([], going)
    assert api.sessions()[0]["state"] == "running"
    status, told = api.ask("/api/v1/profiles/run-1/s1?yes=1", "DELETE")
    assert (status, told["error"]["code"]) == (409, "active")


def test_traces_that_lie_loose(tmp_path: Path) -> None:
    (tmp_path / "logs" / "worker").mkdir(parents=True)
    shutil.copy(
        TRACES / "torch.kineto.json.gz", tmp_path / "logs" / "worker" / "a.pt.trace.json.gz"
    )
    drop(tmp_path / "logs", run="x/y")
    (tmp_path / "logs" / "notes.txt").write_text("no trace")
    api = Api(tmp_path / "root", LocalSettings(profiles=(tmp_path / "logs",), loose_profiles=True))
    try:
        assert {(s["run"], s["session"]) for s in api.sessions()} == {
            ("logs", "worker"),
            ("x:y", "s1"),
        }
        assert api.raw("/api/v1/profiles/logs/worker/files/a.pt.trace.json.gz")[0] == 200
        assert api.ask("/api/v1/profiles/logs/worker?yes=1", "DELETE")[0] == 422
        assert (tmp_path / "logs" / "worker").is_dir()
    finally:
        api.close()


def test_a_run_s_part_for_viewers_and_what_jax_put_beside_it(tmp_path: Path) -> None:
    run = tmp_path / "llama"
    drop(run, run="tensorboard", session="captured")
    drop(tmp_path, run="llama", session="traced")
    drop(tmp_path, run="other", session="not-ours")
    (run / "plugins/profile/link").symlink_to(tmp_path / "other/plugins/profile/not-ours")
    (run / "plugins/profile/file").touch()

    def shown(place: Path) -> set[tuple[str, str]]:
        settings = LocalSettings(profiles=(place,), loose_profiles=True)
        api = Api(tmp_path / "root", settings)
        try:
            return {(s["run"], s["session"]) for s in api.sessions()}
        finally:
            api.close()

    assert shown(run / "tensorboard") == {("llama", "captured"), ("llama", "traced")}
    (run / "tensorboard").rename(run / "logs")
    assert shown(run / "logs") == {("logs", "captured")}  # another name is that directory alone
    (run / "logs").rename(run / "tensorboard")
    with pytest.MonkeyPatch.context() as patch:
        seen = Path.stat
        patch.setattr(Path, "stat", lambda path, **how: _anothers(seen(path, **how), path.name))
        assert shown(run / "tensorboard") == {("llama", "captured")}  # its owner put none there


def _anothers(found: os.stat_result, name: str) -> Any:
    if name != "tensorboard":
        return found
    return os.stat_result((*found[:4], found.st_uid + 1, *found[5:]))


# ── summaries ─────────────────────────────────────────────────────────────────────────────────


def test_a_summary_is_made_once_and_kept(api: Api) -> None:
    lying = drop(api.root / "profiles")
    found = api.summarised("llama", "s1")
    assert found["summary_state"] == "done", found["summary_why"]
    assert {trace["kind"] for trace in found["summary"]["traces"]} == {"kineto", "xplane"}
    until((lying / ".runwatch-summary.json").exists, what="the summary to be kept")
    kept = json.loads((lying / ".runwatch-summary.json").read_text())
    kept["summary"]["traces"] = []
    (lying / ".runwatch-summary.json").write_text(json.dumps(kept))
    again = Api(api.root.parent / "other", LocalSettings(profiles=(api.root / "profiles",)))
    try:
        assert again.summarised("llama", "s1")["summary"]["traces"] == []
        shutil.copy(lying / "gpu-17.xplane.pb", lying / "gpu-18.xplane.pb")
        assert len(again.summarised("llama", "s1")["summary"]["traces"]) == 3
    finally:
        again.close()


def test_a_head_makes_it_when_a_capture_ends(tmp_path: Path) -> None:
    lying = drop(tmp_path / "profiles", run="run-1")
    api = Api(tmp_path, AT_ONCE)
    try:
        begun = Producer(api.head.store, "j").write([], [ended("s0", "", state="started")])
        api.head.feature(ProfilesApi).stored([begun])
        assert not list(lying.glob(".runwatch*"))
        done = Producer(api.head.store, "k").write([], [ended("s1", lying)])
        api.head.feature(ProfilesApi).stored([done])
        until(lambda: (lying / ".runwatch-summary.json").exists(), what="the summary")
        assert api.ask("/api/v1/profiles/run-1/s1")[1]["summary_state"] == "done"
    finally:
        api.close()


def test_a_head_makes_it_when_the_last_file_has_come(tmp_path: Path) -> None:
    """Agents bring files one by one, after the capture has ended: each is read once."""
    api = Api(tmp_path, AT_ONCE)
    names = ["gpu-17.xplane.pb", "gpu-17.kineto.json.gz"]
    try:
        lying = folder(tmp_path / "profiles", run="run-1")
        done = Producer(api.head.store, "k").write([], [ended("s1", "", files=names)])
        api.head.feature(ProfilesApi).stored([done])
        shutil.copy(TRACES / "jax.xplane.pb", lying / names[0])
        api.head.feature(ProfilesApi).kept(lying / names[0])
        shutil.copy(TRACES / "torch.kineto.json.gz", lying / names[1])
        api.head.feature(ProfilesApi).kept(lying / names[1])
        until(lambda: (lying / ".runwatch-summary.json").exists(), what="the summary")
        kept = json.loads((lying / ".runwatch-summary.json").read_text())
        assert sorted(stamp[1] for stamp in kept["stamp"]) == sorted(names)
    finally:
        api.close()


def bomb(path: Path) -> None:
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(b" " * (1 << 20))


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("x", b"\0" * (1 << 24))


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"traceEvents": []}))


def garbled(path: Path) -> None:
    path.write_bytes(b"\x1f\x8b" + b"x" * 99)


def test_what_is_no_trace_is_refused(api: Api) -> None:
    cases: list[tuple[Callable[[Path], None], str, str]] = [
        (bomb, "a.json.gz", "grows more than"),
        (archive, "a.json", "a zip archive"),
        (archive, "a.xplane.pb", "a zip archive"),
        (pickled, "a.json", "a pickle"),
        (pickled, "a.xplane.pb", "a pickle"),
        (Path.touch, "a.json", "empty"),
        (garbled, "a.json.gz", "damaged"),
    ]
    for number, (make, name, why) in enumerate(cases):
        make(folder(api.root / "profiles", session=f"s{number}") / name)
        found = api.summarised("llama", f"s{number}")
        assert found["summary_state"] == "failed" and why in found["summary_why"]
        status, told = api.ask(f"/viewers/trace?run=llama&session=s{number}&file={name}")
        assert status == 422 and why in told["error"]["message"]


def test_an_xplane_that_is_cut_off_says_so(api: Api) -> None:
    whole = (TRACES / "jax.xplane.pb").read_bytes()
    (folder(api.root / "profiles") / "a.xplane.pb").write_bytes(whole[: len(whole) // 2])
    found = api.summarised("llama", "s1")
    assert found["summary_state"] == "failed" and "a.xplane.pb" in found["summary_why"]


def test_the_page_of_a_trace(api: Api) -> None:
    drop(api.root / "profiles")
    status, page = api.raw("/viewers/trace?run=llama&session=s1&file=gpu-17.kineto.json.gz")
    assert status == 200 and b"perfetto/" in page
    assert api.ask("/viewers/trace?run=llama&session=s1&file=none")[0] == 404
    assert api.ask("/viewers/trace?run=llama")[0] == 400


def test_a_viewer_that_is_missing_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch.head.features.profiles.api.assets", lambda: None)
    monkeypatch.setattr("runwatch.head.features.profiles.viewer_proxy.is_installed", lambda: False)
    drop(tmp_path / "profiles")
    api = Api(tmp_path)
    try:
        trace = "/viewers/trace?run=llama&session=s1&file=gpu-17.kineto.json.gz"
        for path in (trace, "/viewers/perfetto/", "/viewers/xprof/data/plugin/profile/?run=llama"):
            status, page = api.raw(path)
            assert status == 404 and page.startswith(b"<!doctype html>"), path
            assert b"runwatch[profiles]" in page and b"download the trace" in page
            assert (b"XProf" in page.split(b"</h1>")[0]) == ("xprof" in path)
    finally:
        api.close()
