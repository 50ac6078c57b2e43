"""Programs of one process that are well and take no step for a while."""

from __future__ import annotations

import asyncio
import code
import contextlib
import gc
import gzip
import http.server
import io
import math
import multiprocessing
import os
import pdb
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.integration.laboratory.case import Scene, Shelf

well = Shelf(hangs=False)
CHUNK: Final = 1 << 16


def clock(scene: Scene) -> Any:
    """Whether there is time left."""
    end = time.monotonic() + scene.seconds
    return lambda: time.monotonic() < end


# ── computing ─────────────────────────────────────────────────────────────────────────────────


@well("first epoch's tokenisation")
def tokenisation(scene: Scene) -> None:
    going, draw, words = clock(scene), scene.draw, Counter[str]()
    while going():
        text = " ".join(draw.choice(("lorem", "ipsum", "dolor")) for _ in range(200))
        words.update(_tokens(text))


def _tokens(text: str) -> list[str]:
    found, word = [], ""
    for letter in text:
        if letter == " ":
            found.append(word)
            word = ""
        else:
            word += letter.lower()
    return found


@well("shuffling a dataset in memory")
def shuffling(scene: Scene) -> None:
    going, indices = clock(scene), list(range(300_000))
    while going():
        random.shuffle(indices)


@well("a long pause of the garbage collector")
def garbage(scene: Scene) -> None:
    going, held = clock(scene), [[number] for number in range(2_000_000)]
    while going():
        gc.collect()
    held.clear()


@well("a loop with a progress bar on standard error")
def progress_bar(scene: Scene) -> None:
    going, done = clock(scene), 0
    while going():
        done += 1
        sys.stderr.write(f"\r{done} " + "=" * (done % 40))
        _refine(done)


def _refine(number: int) -> float:
    return sum(math.sqrt(number + term) for term in range(20_000))


@well("native code that computes and gives the interpreter's lock away")
def native(scene: Scene) -> None:
    going, data = clock(scene), random.Random(scene.seed).randbytes(1 << 24)
    while going():
        zlib.compress(data, 9)


@well("threads of a pool that compute")
def thread_pool(scene: Scene) -> None:
    going, data = clock(scene), random.Random(scene.seed).randbytes(1 << 22)

    def work() -> None:
        while going():
            zlib.compress(data, 9)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work) for _ in range(2)]:
            done.result()


@well("a pool of processes that computes")
def process_pool(scene: Scene) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(_spin, [scene.seconds, scene.seconds / 2])


def _spin(seconds: float) -> float:
    end, found = time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        found += _refine(7)
    return found


# ── files, stores, networks ───────────────────────────────────────────────────────────────────


@well("packing a big log with gzip")
def packing(scene: Scene) -> None:
    going, lines = clock(scene), random.Random(scene.seed).randbytes(1 << 22)
    while going():
        with gzip.open(scene.folder / "log.gz", "wb") as packed:
            shutil.copyfileobj(io.BytesIO(lines), packed)


@well("an upload through a socket that gets on")
def upload(scene: Scene) -> None:
    ours, theirs = socket.socketpair()
    reader = threading.Thread(target=_read_slowly, args=(theirs, scene.seconds), daemon=True)
    reader.start()
    with ours:
        ours.sendall(bytes(CHUNK * 6 * int(scene.seconds)))
    reader.join()


def _read_slowly(sock: socket.socket, seconds: float) -> None:
    with sock:
        while sock.recv(CHUNK):
            time.sleep(0.15)


@well("a model download")
def download(scene: Scene) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Slow) as server:
        _Slow.seconds = scene.seconds
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/model") as answer:
            shutil.copyfileobj(answer, (scene.folder / "model").open("wb"))
        server.shutdown()


class _Slow(http.server.BaseHTTPRequestHandler):
    seconds = 1.0

    def do_GET(self) -> None:
        chunks = int(self.seconds * 5)
        self.send_response(200)
        self.send_header("Content-Length", str(chunks * CHUNK))
        self.end_headers()
        for _ in range(chunks):
            self.wfile.write(bytes(CHUNK))
            time.sleep(0.2)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@well("a stream that an event loop reads, piece by piece")
def async_stream(scene: Scene) -> None:
    async def feed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(int(scene.seconds * 10)):
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.1)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(feed, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while await reader.read(CHUNK):
            pass
        writer.close()
        server.close()

    asyncio.run(main())


@well("an event loop whose tasks compute in turns")
def async_work(scene: Scene) -> None:
    async def work(number: int) -> None:
        going = clock(scene)
        while going():
            _refine(number)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(work(number) for number in range(3)))

    asyncio.run(main())


# ── other processes ───────────────────────────────────────────────────────────────────────────


@well("a child program that packs (git, pip, tar)")
def child_packs(scene: Scene) -> None:
    process = subprocess.Popen(["gzip", "-9"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    data = random.Random(scene.seed).randbytes(1 << 20)
    feeder = threading.Thread(target=_feed, args=(process, data, clock(scene)), daemon=True)
    feeder.start()
    process.wait()
    feeder.join()


def _feed(process: Any, data: bytes, going: Any) -> None:
    with process.stdin as pipe:
        while going():
            pipe.write(data)


@well("a Python child program that installs")
def child_python(scene: Scene) -> None:
    module = "tests.integration.laboratory.well"
    said = f"from {module} import _spin; _spin({scene.seconds})"
    subprocess.run([sys.executable, "-c", said], check=True, cwd=Path(__file__).parents[3])


@well("git at work")
def child_git(scene: Scene) -> None:
    here, going = scene.folder / "repository", clock(scene)
    subprocess.run(["git", "init", "-q", here], check=True)
    while going():
        (here / "weights").write_bytes(random.randbytes(1 << 24))
        subprocess.run(["git", "-C", here, "add", "weights"], check=True)


# ── a person, and words ───────────────────────────────────────────────────────────────────────


def _typed(seconds: float, line: bytes) -> None:
    """Somebody types a line at our standard input after some time."""
    ours, theirs = os.pipe()
    os.dup2(ours, 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    threading.Timer(seconds, os.write, (theirs, line)).start()


@well("a debugger's prompt that waits for a person")
def debugger(scene: Scene) -> None:
    _typed(scene.seconds, b"continue\n")
    pdb.Pdb(stdin=sys.stdin, stdout=sys.stderr, nosigint=True).set_trace()
    time.sleep(0.01)


@well("an interactive console without a line to run")
def console(scene: Scene) -> None:
    _typed(scene.seconds, b"raise SystemExit\n")
    with contextlib.suppress(SystemExit):
        code.interact(readfunc=lambda prompt: sys.stdin.readline().rstrip("\n"))


@well("a notebook kernel between two cells")
def kernel(scene: Scene) -> None:
    """Its event loop as ipykernel's: the folder's name is what tells."""
    package = scene.folder / "site-packages" / "ipykernel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "kernelapp.py").write_text(KERNEL)
    sys.path.insert(0, str(package.parent))
    from ipykernel.kernelapp import IPKernelApp  # type: ignore[import-not-found]

    IPKernelApp().start(scene.seconds)


KERNEL: Final = """\
import asyncio

class IPKernelApp:
    def start(self, seconds):
        loop = asyncio.new_event_loop()
        loop.call_later(seconds, loop.stop)
        loop.run_forever()
        loop.close()
"""


@well("sleep between two epochs, with words about it")
def talking(scene: Scene) -> None:
    going, turn = clock(scene), 0
    while going():
        time.sleep(0.5)
        turn += 1
        scene.run.log({"cooling/turn": turn})


@well("sleep between two epochs, printing how long it takes still")
def printing(scene: Scene) -> None:
    going = clock(scene)
    while going():
        print("cooling down", flush=True)
        time.sleep(0.7)


@well("a program that records values and no steps for a while")
def values_only(scene: Scene) -> None:
    going = clock(scene)
    while going():
        scene.run.log({"loss": _refine(3)})
        time.sleep(0.3)
