"""Causes of hangs in a program of one process.  The line to be named ends in `# here: NAME`."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import multiprocessing
import os
import queue
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from tests.integration.laboratory.case import Scene, Shelf

hang = Shelf(hangs=True)


@hang("a lock whose holder has ended")
def orphan(scene: Scene) -> None:
    lock = threading.Lock()
    holder = threading.Thread(target=lock.acquire)
    holder.start()
    holder.join()
    lock.acquire()  # here: orphan


@hang("two threads, each with the other's lock")
def deadlock(scene: Scene) -> None:
    first, second, met = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with second:
            met.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        met.wait()
        second.acquire()  # here: deadlock


@hang("native code that waits with the interpreter's lock in its hands")
def gil(scene: Scene) -> None:
    lock, mutex = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)  # here: gil


@hang("a regular expression that backtracks for ever, with the interpreter's lock")
def regex(scene: Scene) -> None:
    re.match(r"(a|aa)+$", "a" * 200 + "b")  # here: regex


@hang("an endless loop in one line")
def loop(scene: Scene) -> None:
    # fmt: off
    while True: pass  # noqa: E701  # here: loop
    # fmt: on


@hang("recv on a socket that nobody writes to")
def recv(scene: Scene) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.recv(1)  # here: recv


@hang("accept, and nobody connects")
def accept(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()  # here: accept


@hang("sendall to somebody who does not read")
def send(scene: Scene) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(bytes(1 << 26))  # here: send


@hang("select on a socket that nobody writes to")
def selecting(scene: Scene) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        select.select([ours], [], [])  # here: selecting


@hang("a server that takes the request and never answers")
def http(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        urllib.request.urlopen(f"http://127.0.0.1:{port}/")  # here: http


@hang("a pipe that nobody writes to")
def pipe(scene: Scene) -> None:
    ours, _theirs = os.pipe()
    os.read(ours, 1)  # here: pipe


@hang("a named pipe that nobody opens at the other end")
def fifo(scene: Scene) -> None:
    path = scene.folder / "fifo"
    os.mkfifo(path)
    path.open("rb")  # here: fifo


@hang("a file lock that another process holds")
def flock(scene: Scene) -> None:
    path, (ours, theirs) = scene.folder / "lock", os.pipe()
    if os.fork() == 0:
        with path.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            os.write(theirs, b"x")
            signal.pause()
    os.read(ours, 1)
    with path.open("w") as wanted:
        fcntl.flock(wanted, fcntl.LOCK_EX)  # here: flock


@hang("sleep for an hour")
def sleep(scene: Scene) -> None:
    time.sleep(3600)  # here: sleep


@hang("polling for a file that never comes")
def polling(scene: Scene) -> None:
    while not (scene.folder / "done").exists():
        time.sleep(0.1)  # here: polling


@hang("a queue that nobody fills")
def empty_queue(scene: Scene) -> None:
    queue.Queue[int]().get()  # here: empty_queue


@hang("an event that nobody sets, waited for with a timeout, again and again")
def unset_event(scene: Scene) -> None:
    event = threading.Event()
    while not event.wait(0.3):  # here: unset_event
        pass


@hang("a thread that is waited for and is stuck itself")
def join(scene: Scene) -> None:
    ours, _theirs = os.pipe()
    thread = threading.Thread(target=os.read, args=(ours, 1), daemon=True)
    thread.start()
    thread.join()  # here: join


@hang("a future whose worker is stuck")
def future(scene: Scene) -> None:
    ours, _theirs = os.pipe()
    pool = ThreadPoolExecutor(1)
    pool.submit(os.read, ours, 1).result()  # here: future


@hang("a semaphore that nobody releases")
def semaphore(scene: Scene) -> None:
    held = threading.Semaphore(0)
    held.acquire()  # here: semaphore


@hang("a child program that sleeps")
def child(scene: Scene) -> None:
    subprocess.run(["sleep", "3600"])  # here: child


@hang("a child program whose output nobody reads")
def full_pipe(scene: Scene) -> None:
    process = subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE)
    process.wait()  # here: full_pipe


@hang("a forked child that is stuck and waited for")
def fork(scene: Scene) -> None:
    ours, _theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(ours, 1)
    os.waitpid(pid, 0)  # here: fork


@hang("a queue of processes whose writer has died")
def dead_child(scene: Scene) -> None:
    context = multiprocessing.get_context("fork")
    ours: multiprocessing.Queue[int] = context.Queue()
    process = context.Process(target=os._exit, args=(3,))
    process.start()
    ours.get()  # here: dead_child


@hang("a pool whose worker was killed with its task")
def pool(scene: Scene) -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as workers:
        workers.apply(_die)  # here: pool


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@hang("SIGSTOP", marks=False)
def stopped(scene: Scene) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


@hang("a worker of a DataLoader that is stuck in its dataset", "torch")
def loader_worker(scene: Scene) -> None:
    import torch.utils.data

    stuck = cast("torch.utils.data.Dataset[int]", _Stuck())
    loader = torch.utils.data.DataLoader(stuck, num_workers=1)
    with contextlib.suppress(StopIteration):
        next(iter(loader))


class _Stuck:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        ours, _theirs = os.pipe()
        return len(os.read(ours, 1))  # here: loader_worker


@hang("a hook in the backward pass that waits for a lock", "torch")
def backward_hook(scene: Scene) -> None:
    import torch

    lock = threading.Lock()
    lock.acquire()
    weights = torch.ones(4, requires_grad=True)
    weights.register_hook(lambda gradient: lock.acquire() and gradient)  # here: backward_hook
    weights.square().sum().backward()
