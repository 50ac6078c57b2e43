"""XProf and Perfetto inside a real head, seen by a real browser with the network cut off."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from runwatch.capture.process import children
from runwatch.testing import until
from tests.integration.chromium import NO_BROWSER, PROGRAM, Chromium, Page
from tests.integration.processes import end

TRACES = Path(__file__).parents[1] / "fixtures" / "profiles"
TOKEN = "a-secret-of-this-test"
BASE = "/team/x"
XPROF = "viewers/xprof/data/plugin/profile"
RUN = "run=llama%2Fs1"
needs_browser = pytest.mark.skipif(not PROGRAM, reason=NO_BROWSER)
pytestmark = pytest.mark.xdist_group("viewers")


class Host:
    """`runwatch host DIR` as a process."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = ["-m", "runwatch.cli", "host", str(folder), "--port", "0", "--token", TOKEN]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
        self.process = subprocess.Popen(
            [sys.executable, *command, *options],
            stdout=subprocess.PIPE,
            env=environment | {"RUNWATCH_DIR": str(folder / "none")},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        found = re.search(r"(http://127\.0\.0\.1:(\d+)\S*?)/viewers/\?token=(\S+)", line)
        assert found is not None, line
        self.address, self.port = found[1], int(found[2])
        assert found[3] == TOKEN

    def get(self, path: str, *, token: str = TOKEN, **headers: str) -> tuple[int, bytes]:
        return get(f"{self.address}/{path}", token, **headers)

    def xprof(self, path: str) -> Any:
        status, body = self.get(f"{XPROF}/{path}")
        assert status == 200, body
        return json.loads(body)

    def viewers(self) -> list[int]:
        """Viewers that it started and that are alive, or not yet waited for."""
        return [pid for pid in children(self.process.pid) if is_viewer(pid)]

    def close(self) -> None:
        assert self.process.stdout is not None
        end(self.process, signal.SIGTERM)
        self.process.stdout.close()


def is_viewer(pid: int) -> bool:
    """Not a summary that is being worked out; one that is dead has no words left."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"runwatch.head.features.profiles.viewer\0" in words


def get(address: str, token: str = TOKEN, **headers: str) -> tuple[int, bytes]:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        said["Authorization"] = f"Bearer {token}"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=said)) as answer:
            body = answer.read()
            packed = answer.headers.get("Content-Encoding") == "gzip"
            return answer.status, gzip.decompress(body) if packed else body
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("profiles")
    folder = place / "llama" / "plugins" / "profile" / "s1"
    folder.mkdir(parents=True)
    shutil.copy(TRACES / "jax.xplane.pb", folder / "gpu-17.xplane.pb")
    shutil.copy(TRACES / "torch.kineto.json.gz", folder / "gpu-17.kineto.json.gz")
    return place


@pytest.fixture(scope="module")
def host(profiles: Path) -> Iterator[Host]:
    made = Host(profiles, "--base-path", BASE)
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


# ── what the viewers answer ───────────────────────────────────────────────────────────────────


def test_xprof_answers_through_the_head(host: Host) -> None:
    assert host.xprof("runs") == ["llama/s1"]
    assert {"overview_page", "trace_viewer@"} <= set(host.xprof(f"run_tools?{RUN}"))
    tables = host.xprof(f"data?{RUN}&tag=overview_page&host=gpu-17")
    assert any("cols" in table for table in tables)
    trace = host.xprof(f"data?{RUN}&tag=trace_viewer&host=gpu-17")
    assert "train 4" in {event.get("name") for event in trace["traceEvents"]}


def test_what_it_writes_is_not_left_beside_the_profiles(host: Host, profiles: Path) -> None:
    host.xprof(f"data?{RUN}&tag=overview_page&host=gpu-17")
    folder = profiles / "llama" / "plugins" / "profile" / "s1"
    names = {path.name for path in folder.iterdir()} - {".runwatch-summary.json"}
    assert names == {"gpu-17.xplane.pb", "gpu-17.kineto.json.gz"}


@pytest.mark.parametrize(
    "path",
    [
        f"{XPROF}/capture_profile?service_addr=127.0.0.1:1&duration=1",
        f"{XPROF}/capture%5Fprofile?service_addr=127.0.0.1:1",
        f"{XPROF}/generate_cache?session_path=/etc",
        f"{XPROF}/runs?session_path=/etc",
        f"{XPROF}/data?run=../../../../etc&tag=overview_page",
    ],
)
def test_xprof_reaches_nothing_but_these_profiles(host: Host, path: str) -> None:
    assert host.get(path)[0] == 403


def test_nothing_is_written_through_it(host: Host) -> None:
    request = urllib.request.Request(
        f"{host.address}/{XPROF}/generate_cache",
        data=b"{}",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    with pytest.raises(urllib.error.HTTPError, match="405") as refused:
        urllib.request.urlopen(request)
    refused.value.close()


@pytest.mark.parametrize(
    "path",
    [
        "viewers/",
        f"{XPROF}/runs",
        f"{XPROF}/",
        "viewers/perfetto/",
        "viewers/trace?run=llama&session=s1&file=gpu-17.kineto.json.gz",
        "api/v1/profiles",
        "api/v1/profiles/llama/s1/files/gpu-17.xplane.pb",
    ],
)
def test_all_of_it_needs_the_token(host: Host, path: str) -> None:
    assert host.get(path, token="")[0] == 401
    assert host.get(path, token="wrong")[0] == 401
    assert host.get(path)[0] == 200


def test_perfetto_files(host: Host) -> None:
    status, page = host.get("viewers/perfetto/")
    found = re.search(rb'"stable":"([^"]+)"', page)
    assert status == 200 and found is not None
    for name in ("frontend_bundle.js", "trace_processor.wasm", "perfetto.css"):
        assert host.get(f"viewers/perfetto/{found[1].decode()}/{name}")[0] == 200
    for name in ("service_worker.js", "..%2f..%2fviewer.py", "nothing.js", "trace_processor"):
        assert host.get(f"viewers/perfetto/{name}")[0] == 404


def test_a_file_in_parts(host: Host) -> None:
    path = "api/v1/profiles/llama/s1/files/gpu-17.xplane.pb"
    whole = (TRACES / "jax.xplane.pb").read_bytes()
    assert host.get(path) == (200, whole)
    assert host.get(path, Range="bytes=10-19") == (206, whole[10:20])


def test_two_users_at_once(host: Host) -> None:
    tools = ["overview_page", "trace_viewer", "hlo_stats", "op_profile"] * 3
    with ThreadPoolExecutor(6) as users:
        asked = [
            users.submit(host.get, f"{XPROF}/data?{RUN}&tag={tool}&host=gpu-17") for tool in tools
        ]
        assert [future.result()[0] for future in asked] == [200] * len(tools)
    assert len(host.viewers()) == 1


def test_a_viewer_that_is_killed_is_there_again(host: Host) -> None:
    assert host.xprof("runs") == ["llama/s1"]
    (viewer,) = host.viewers()
    os.kill(viewer, signal.SIGKILL)
    until(lambda: viewer not in host.viewers())
    assert host.xprof("runs") == ["llama/s1"]
    assert host.viewers() != [viewer] and host.process.poll() is None


def test_a_session_that_comes_later_is_seen(host: Host, profiles: Path) -> None:
    host.xprof("runs")
    folder = profiles / "llama" / "plugins" / "profile" / "s2"
    # Without the summary, which the head may be writing.
    shutil.copytree(folder.with_name("s1"), folder, ignore=shutil.ignore_patterns(".*"))
    try:
        until(lambda: host.xprof("runs") == ["llama/s2", "llama/s1"])
    finally:
        shutil.rmtree(folder)


def _open_files(pid: int) -> Iterator[str]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(file)


def test_it_leaves_nothing_behind(profiles: Path) -> None:
    host = Host(profiles)
    host.xprof("runs")
    (viewer,) = host.viewers()
    socket = Path(f"/proc/{viewer}/cmdline").read_bytes().split(b"\0")[4].decode()
    assert Path(socket).exists()
    kept = {p for p in _open_files(host.process.pid) if "runwatch-host-" in p}
    assert kept
    host.close()
    assert not Path(f"/proc/{viewer}").exists() and not Path(socket).parent.exists()
    assert not any(Path(path).exists() for path in kept)


def test_a_directory_that_is_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runwatch.cli", "host", "/nowhere/at/all"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "/nowhere/at/all" in done.stderr


# ── in a browser ──────────────────────────────────────────────────────────────────────────────


def rewritten(head: bytes, strip: str) -> bytes:
    line, *fields = head.rstrip().split(b"\r\n")
    method, path, version = line.split(b" ")
    kept = [field for field in fields if not field.lower().startswith(b"connection:")]
    first = b" ".join([method, path.removeprefix(strip.encode()), version])
    return b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


class Proxy(socketserver.ThreadingTCPServer):
    """In front of a head, a thread for each connection.  With `strip` it takes the prefix off."""

    def __init__(self, port: int, strip: str) -> None:
        self._port, self._strip = port, strip
        self._lock, self._ended = threading.Lock(), False
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)

    @contextmanager
    def _until_the_end(self, connection: socket.socket) -> Iterator[None]:
        with self._lock:
            if self._ended:
                raise ConnectionAbortedError
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.remove(connection)

    def finish_request(self, browser: Any, _address: object) -> None:
        with suppress(OSError), self._until_the_end(browser):
            asked = b""
            while not asked.endswith(b"\r\n\r\n"):
                if not (piece := browser.recv(1 << 16)):
                    return  # a browser opens connections that it does not use
                asked += piece
            head = socket.create_connection(("127.0.0.1", self._port))
            with head, self._until_the_end(head):
                head.sendall(rewritten(asked, self._strip))
                while piece := head.recv(1 << 16):
                    browser.sendall(piece)

    def end(self) -> None:
        self.shutdown()
        with self._lock:
            self._ended = True
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()  # waits for the threads


@contextmanager
def reverse_proxy(port: int, strip: str) -> Iterator[str]:
    proxy = Proxy(port, strip)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}{BASE}"
    finally:
        proxy.end()
        thread.join()


@contextmanager
def seen_at(host: Host, how: str) -> Iterator[str]:
    """Where a browser finds the head: directly, or behind either kind of proxy."""
    if how == "directly":
        yield host.address
        return
    with reverse_proxy(host.port, BASE if how == "stripping" else "") as address:
        yield address


def check_all_from(page: Page, address: str) -> None:
    home = address.removesuffix(BASE)
    local = ("data:", "blob:", "about:", f"{home}/favicon.ico", f"{home}/live_reload")
    assert [url for url in page.loaded() if not url.startswith((address, *local))] == []


@needs_browser
@pytest.mark.parametrize("how", ["directly", "stripping", "passing on"])
def test_the_list_leads_to_xprof(host: Host, browser: Chromium, how: str) -> None:
    with seen_at(host, how) as address, listed(browser, address) as page:
        page.evaluate("[...document.querySelectorAll('tbody a')][0].click()")
        page.until("location.href.includes('overview_page')")
        page.until("document.body.innerText.includes('Performance Summary')")
        assert page.evaluate("location.href").startswith(f"{address}/{XPROF}/")
        check_all_from(page, address)


@contextmanager
def listed(browser: Chromium, address: str) -> Iterator[Page]:
    with browser.open(f"{address}/viewers/?token={TOKEN}") as page:
        page.until("document.querySelectorAll('tbody a').length === 2")
        assert TOKEN not in page.evaluate("location.href")
        yield page


_IN_FRAME = "document.querySelector('iframe')?.contentDocument?.body?.innerText"


@needs_browser
def test_xprof_draws_a_trace(host: Host, browser: Chromium) -> None:
    with listed(browser, host.address):
        pass
    tool = f"{XPROF}/trace_viewer@?{RUN}&tag=trace_viewer@&host=gpu-17"
    with browser.open(f"{host.address}/{tool}") as page:
        page.until(f"({_IN_FRAME} || '').includes('tf_XLA')")
        check_all_from(page, host.address)


@needs_browser
@pytest.mark.parametrize(
    "how",
    ["stripping", *(pytest.param(h, marks=pytest.mark.soak) for h in ("directly", "passing"))],
)
def test_perfetto_draws_a_trace(host: Host, browser: Chromium, how: str) -> None:
    with seen_at(host, how) as address, listed(browser, address) as page:
        page.evaluate("[...document.querySelectorAll('tbody a')][1].click()")
        page.until("document.title.includes('gpu-17.kineto.json.gz')")
        page.until("/python[\\d.]* \\d+/.test(document.body.innerText)")
        assert page.evaluate("location.pathname").endswith("/viewers/perfetto/")
        assert page.evaluate("navigator.serviceWorker.getRegistrations().then(r => r.length)") == 0
        check_all_from(page, address)
