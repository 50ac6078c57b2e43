"""Which directory a command reads, and what it says when there is none for it."""

from __future__ import annotations

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from runwatch.address import ADDRESS_FILE
from runwatch.cli.__main__ import main
from runwatch.cli.source import RemoteSource, check_open, head_of
from runwatch.errors import UsageError
from runwatch.journal.moved import fallback_place


@pytest.mark.parametrize("closed", ["", "journals"])
def test_another_users_directory_is_named_before_it_is_read(tmp_path: Path, closed: str) -> None:
    """Root may read everything: what the system says is given here."""
    shut = tmp_path / closed
    shut.mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="you may not read"):
        check_open(tmp_path, may=lambda folder, how: folder != shut)
    check_open(tmp_path)
    check_open(tmp_path / "none yet", may=lambda folder, how: False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_closed_directory_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journals").mkdir(mode=0)
    assert main(["runs", "--dir", str(tmp_path)]) != 0
    assert "you may not read" in capsys.readouterr().err


def test_what_was_recorded_elsewhere_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    nowhere = str(tmp_path / "nowhere")
    assert main(["runs", "--dir", nowhere]) != 0
    said = capsys.readouterr().err
    assert nowhere in said and "could not record" not in said
    fallback_place().mkdir()
    assert main(["runs", "--dir", nowhere]) != 0
    assert str(fallback_place()) in capsys.readouterr().err


def test_settings_are_readable_on_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["config", "head"]) == 0
    narrow = capsys.readouterr().out
    assert "head.bind = 127.0.0.1\n" in narrow
    assert "    address to listen on [RUNWATCH_BIND]" in narrow
    assert "(from environment RUNWATCH_DIR)" in " ".join(narrow.split())


def test_the_port_of_agents_leads_to_the_page_beside_it() -> None:
    """RUNWATCH_HEAD named that port once, and the page had the next one."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"status": "ok", "path": self.path}).encode())

        def log_message(self, *_: object) -> None:
            pass

    agents, page = _neighbours(Page)
    calls = threading.Thread(target=_speak_http2_once, args=(agents,))
    pages = threading.Thread(target=page.serve_forever, args=(0.01,))
    for thread in (calls, pages):
        thread.start()
    try:
        source = RemoteSource(f"http://127.0.0.1:{agents.getsockname()[1]}", "")
        assert source.get("/runs")["path"] == "/api/v1/runs"
        assert source.name == f"http://127.0.0.1:{page.server_port}"
    finally:
        page.shutdown()
        for thread in (calls, pages):
            thread.join()
        page.server_close()
        agents.close()


def test_the_settings_file_names_the_head_for_commands_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for programs and agents.  Who names a directory asks that one."""

    class Head(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == "Bearer rw-secret"
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(json.dumps({"runs": []} if known else {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    head = HTTPServer(("127.0.0.1", 0), Head)
    serving = threading.Thread(target=head.serve_forever, args=(0.01,))
    serving.start()
    monkeypatch.setenv("RUNWATCH_DIR", str(tmp_path))
    (tmp_path / "token").write_text("rw-secret")
    (tmp_path / "token").chmod(0o600)
    settings = f'[agent]\nhead = "127.0.0.1:{head.server_port}"\ntoken_file = "{tmp_path}/token"\n'
    (tmp_path / "config.toml").write_text(settings)
    try:
        assert main(["runs", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"runs": []}
    finally:
        head.shutdown()
        serving.join()
        head.server_close()
    assert main(["runs"]) != 0
    assert f"no answer from the head at http://127.0.0.1:{head.server_port}" in str(
        capsys.readouterr().err
    )
    assert main(["runs", "--dir", str(tmp_path)]) == 0


def _neighbours(handler: type[BaseHTTPRequestHandler]) -> tuple[socket.socket, HTTPServer]:
    while True:
        agents = socket.create_server(("127.0.0.1", 0))
        try:
            return agents, HTTPServer(("127.0.0.1", agents.getsockname()[1] + 1), handler)
        except (OSError, OverflowError):
            agents.close()


def _speak_http2_once(server: socket.socket) -> None:
    with server.accept()[0] as caller:
        caller.recv(1000)
        caller.sendall(b"\0\0\x18\x04\0\0\0\0\0")


def test_only_a_head_that_has_the_store_open_answers_for_it(tmp_path: Path) -> None:
    """A note alone says nothing: a head that was killed leaves it, and its port may be reused."""
    note = {"http": "http://127.0.0.1:1", "grpc": "", "token": "t", "pid": 4711}
    (tmp_path / ADDRESS_FILE).write_text(json.dumps(note))
    (tmp_path / ADDRESS_FILE).chmod(0o600)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "lock").touch()
    inode = (tmp_path / "store" / "lock").stat().st_ino
    locks = tmp_path / "locks"
    for line, answers in (
        (f"1: FLOCK  ADVISORY  WRITE 4711 fe:00:{inode} 0 EOF", True),
        (f"1: FLOCK  ADVISORY  WRITE 4712 fe:00:{inode} 0 EOF", False),
        (f"1: FLOCK  ADVISORY  WRITE 4711 fe:00:{inode + 1} 0 EOF", False),
        (f"1: POSIX  ADVISORY  WRITE 4711 fe:00:{inode} 0 EOF", False),
        ("", False),
    ):
        locks.write_text(f"1: OFDLCK ADVISORY  READ -1 00:05:7 0 EOF\n{line}\n")
        assert (head_of(tmp_path, locks) is not None) == answers, line
    assert head_of(tmp_path, tmp_path / "no-such-file") is None
