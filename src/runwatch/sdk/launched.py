"""The other end of `runwatch exec`, inside the processes of the command that it runs.

`RUNWATCH_EXEC` names a socket of the wrapper's scribe (`launcher/desk.py`).  A rank gets pipes of
its own for stdout and stderr, so that its lines are known as its, as soon as everything written
before has been passed on.  A process that begins a run says
which, so that the wrapper takes part in that one.  Without a wrapper, or with one that does not
answer at once, nothing happens.  A message is one packet of JSON.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

ADDRESS: Final = "RUNWATCH_EXEC"
RANK_OF_WRAPPER: Final = "RUNWATCH_EXEC_RANK"
MAX_MESSAGE: Final = 64 << 10
_SECONDS: Final = 0.5
_OUT: Final = (1, 2)
# What tells a rank from its neighbours: one of these is set for each process of a job.
_RANKS: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


def rank_in(environment: Mapping[str, str]) -> int | None:
    for name in _RANKS:
        value = environment.get(name, "").strip()
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def take_pipes(environment: Mapping[str, str] = os.environ) -> None:
    """If this process is a rank of several, have its output known as this rank's.

    Raises OSError or ValueError only before anything has changed.
    """
    rank, address = rank_in(environment), environment.get(ADDRESS, "")
    if rank is None or not address or environment.get(RANK_OF_WRAPPER) == str(rank):
        return
    import json  # most processes of a command are no ranks, and get no further
    import socket

    question = {"kind": "pipes", "rank": rank, "files": [_file(number) for number in _OUT]}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(_SECONDS)
        line.connect(address)
        line.send(json.dumps(question).encode())
        answer, given, _, _ = socket.recv_fds(line, MAX_MESSAGE, len(_OUT))
        try:
            for number, at in json.loads(answer or b"{}").get("numbers", {}).items():
                os.dup2(given[at], int(number))
        finally:
            for each in given:
                os.close(each)


def tell_run(run: str, name: str, group: str, environment: Mapping[str, str] = os.environ) -> None:
    """This process has begun that run.  If there is a wrapper, it takes part in it."""
    address = environment.get(ADDRESS, "")
    if not address:
        return
    import json
    import socket

    told = {"kind": "run", "run": run, "name": name, "group": group}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.settimeout(_SECONDS)
        try:
            line.connect(address)
            line.send(json.dumps(told).encode())
        except OSError:
            return  # the wrapper has ended: this process outlives the command


def _file(number: int) -> tuple[int, int] | None:
    try:
        about = os.fstat(number)
    except OSError:
        return None
    return about.st_dev, about.st_ino
