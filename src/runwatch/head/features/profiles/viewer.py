"""XProf's own web application, in a process of its own, on a socket that only we can open.

    python -m runwatch.head.features.profiles.viewer SOCKET FOLDER MEMORY_BYTES

Serves the profiles under FOLDER, which come through standard input (`shown.py`), until that ends:
then whoever started us is gone, however that came about.  It says `ready` when it takes requests.
"""

from __future__ import annotations

import gzip
import importlib
import os
import resource
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final

from runwatch.head.features.profiles.shown import Taker
from runwatch.head.http.policy import inline_hashes

RESERVED_BYTES: Final = 4 << 30
"""Libraries and stacks reserve far more than they use; what is really used is watched outside."""
THREADS: Final = 8

Headers = list[tuple[str, str]]
Application = Callable[..., Iterable[bytes]]

_PLAIN_ORIGIN: Final = b"${window.parent.location.origin}"
_PREFIXED_ORIGIN: Final = (
    b"${window.parent.location.origin+"
    b'window.parent.location.pathname.split("/data/plugin/profile")[0]}'
)


def main(words: list[str]) -> None:
    address, folder, memory = words
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each file that is shown is open
    threading.Thread(target=_follow_parent, args=[Path(folder)], daemon=True).start()
    limit = 2 * int(memory) + RESERVED_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    server = _server(address, adapted(_xprof(folder)))
    server.prepare()
    os.write(1, b"ready\n")
    server.serve()


def _follow_parent(folder: Path) -> None:
    try:
        Taker(socket.socket(fileno=0), folder).follow()
    finally:  # without it nobody tells us what there is, or when to end
        shutil.rmtree(folder.parent, ignore_errors=True)
        os._exit(0)


def _xprof(folder: str) -> Application:
    server: Any = importlib.import_module("xprof.server")
    context = server.TBContext(folder, server.DataProvider(folder), server.TBContext.Flags(False))
    context.hide_capture_profile_button = True
    application: Application = server.make_wsgi_app(server.ProfilePluginLoader().load(context))
    return application


def _server(address: str, application: Application) -> Any:
    wsgi: Any = importlib.import_module("cheroot.wsgi")
    return wsgi.Server(address, application, numthreads=THREADS, server_name="localhost")


# ── what we change about it ───────────────────────────────────────────────────────────────────


def adapted(application: Application) -> Application:
    """The same, keeping to a path prefix and asking no other host for anything."""

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begun: list[Any] = []

        def start(status: str, headers: Headers, error: Any = None) -> Callable[[bytes], None]:
            begun[:] = [status, headers]
            return lambda _: None

        pieces = iter(application(environ, start))
        # An application may say its status only when asked for the first piece.
        body: Iterable[bytes] = chain([next(pieces, b"")], pieces)
        status, headers = begun
        # Parts of it link to the root of the host, which is not theirs when under a prefix.
        if environ["PATH_INFO"].endswith("/bundle.js"):
            text = _text(body, headers).replace(_PLAIN_ORIGIN, _PREFIXED_ORIGIN)
            packed = gzip.compress(text, 3)
            body = [packed]
            headers = [*_without(headers, "content-length"), ("Content-Length", str(len(packed)))]
        scripts = ""
        if _is_page(headers):
            body = list(body)
            if _is_front(environ["PATH_INFO"]):
                scripts = inline_hashes("script", _text(body, headers).decode())
        start_response(status, [*_without(headers, "content-security-policy"), policy(scripts)])
        return body

    return serve


def policy(scripts: str = "") -> tuple[str, str]:
    """No other host.  Its older trace viewer makes functions from text, its newer one is wasm."""
    return (
        "Content-Security-Policy",
        f"default-src 'none'; script-src 'self' 'unsafe-eval' {scripts}; worker-src 'self' blob:; "
        "style-src 'self' 'unsafe-inline'; font-src 'self' data:; img-src 'self' data: blob:; "
        "connect-src 'self' data: blob:; frame-src 'self' blob:; frame-ancestors 'self'; "
        "base-uri 'self'; form-action 'none'",
    )


def _is_page(headers: Headers) -> bool:
    return any(name.lower() == "content-type" and "text/html" in value for name, value in headers)


def _is_front(path: str) -> bool:
    """The page of the application itself, not one made from what a profile says."""
    return path.rstrip("/").rsplit("/", 1)[-1] not in ("data", "data_csv")


def _text(body: Iterable[bytes], headers: Headers) -> bytes:
    whole = b"".join(body)
    packed = any(n.lower() == "content-encoding" and v == "gzip" for n, v in headers)
    return gzip.decompress(whole) if packed else whole


def _without(headers: Headers, left_out: str) -> Headers:
    return [(name, value) for name, value in headers if name.lower() != left_out]


if __name__ == "__main__":
    main(sys.argv[1:])
