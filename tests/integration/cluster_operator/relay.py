"""A relay before the head: says what was asked of it, and can lose answers or be away."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple, cast

_OWN: Final = ("connection", "keep-alive", "transfer-encoding", "content-length")


class Heard(NamedTuple):
    method: str
    path: str
    status: int


class Relay:
    """`done` is called between the head's answer and its way back, in the relay's thread."""

    def __init__(self, head_port: int) -> None:
        self.head_port = head_port
        self.heard: list[Heard] = []
        self.done: list[Callable[[Heard], None]] = []
        self.is_away = False
        self.losing = re.compile("(?!)")
        """Requests that are done, and whose answer is lost."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.relay = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def count(self, method: str, ending: str) -> int:
        return sum(each.method == method and each.path.endswith(ending) for each in self.heard)

    def clear(self) -> None:
        self.done.clear()
        self.is_away, self.losing = False, re.compile("(?!)")

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    relay: Relay
    daemon_threads = False
    block_on_close = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a connection for each: what is cut is one answer

    def do_GET(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        relay = cast(_Server, self.server).relay
        if relay.is_away:
            self._cut()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        head = http.client.HTTPConnection("127.0.0.1", relay.head_port, timeout=60)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _OWN}
            head.request(self.command, self.path, body or None, headers)
            answer = head.getresponse()
            told, status = answer.read(), answer.status
        except (OSError, http.client.HTTPException):
            self._cut()
            return
        finally:
            head.close()
        heard = Heard(self.command, self.path, status)
        relay.heard.append(heard)
        for each in relay.done:
            each(heard)
        if relay.losing.search(f"{self.command} {self.path}"):
            self._cut()
            return
        self._answer(status, answer.headers.get("Content-Type", ""), told)

    def _answer(self, status: int, kind: str, told: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)
        except OSError:
            return  # who asked is gone

    def _cut(self) -> None:
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def log_message(self, format: str, *arguments: object) -> None:
        """The relay is quiet."""
