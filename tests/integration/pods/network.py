"""The wire between nodes and pods: a bridge in a network namespace that is the test's own.

What a node runs for itself (a head, an agent, a command of a person) is in that namespace, at
`NODE`.  Each pod has a namespace of its own, and in it `eth0`.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Final

from tests.integration.pods import system

NODE: Final = "10.77.0.1"
_BITS: Final = 16
_BRIDGE: Final = "rwlan"
_ADDRESS: Final = "02:00:00:00:00:01"
_POD: Final = "rwpod"
REPOSITORY: Final = Path(__file__).resolve().parents[3]
_HOLD: Final = [sys.executable, "-S", "-m", "tests.integration.pods.hold"]


class Held:
    """Namespaces, and the process that keeps them."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [*_HOLD, *words], cwd=REPOSITORY, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._pipes: list[IO[bytes] | None] = [self.process.stdin, self.process.stdout]
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"held\n":
            self.close()
            raise OSError(f"namespaces cannot be made: {words}")

    def namespace(self, kind: str) -> str:
        return f"/proc/{self.process.pid}/ns/{kind}"

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        for pipe in self._pipes:
            if pipe is not None:
                pipe.close()


class Wire:
    def __init__(self) -> None:
        self._held = Held("net")
        self._numbers = itertools.count(2)
        self._names: dict[str, str] = {}
        # With no address of its own a bridge has the lowest of its links': it would change with
        # each pod that comes and goes, and others would send to nobody for a while.
        self._ip(
            "link set lo up",
            f"link add {_BRIDGE} address {_ADDRESS} type bridge",
            f"addr add {NODE}/{_BITS} dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
        )

    def inside(self) -> AbstractContextManager[None]:
        return system.inside(self._held.namespace("net"))

    def join(self, pod: Held) -> str:
        """The pod's address, from now on."""
        number = next(self._numbers)
        address, name = f"10.77.{number >> 8}.{number & 255}", f"{_POD}{number}"
        self._ip(
            f"link add {name} type veth peer name eth0 netns {pod.process.pid}",
            f"link set {name} master {_BRIDGE} up",
        )
        _ip(
            pod.namespace("net"),
            "link set lo up",
            f"addr add {address}/{_BITS} dev eth0",
            "link set eth0 up",
            f"route add default via {NODE}",
        )
        self._names[address] = name
        return address

    def cut(self, address: str) -> None:
        self._ip(f"link set {self._names[address]} down")

    def mend(self, address: str) -> None:
        self._ip(f"link set {self._names[address]} up")

    def close(self) -> None:
        self._held.close()

    def _ip(self, *commands: str) -> None:
        _ip(self._held.namespace("net"), *commands)


def is_ours(link: str) -> bool:
    """Whether a wire makes links of such a name."""
    return link.startswith((_BRIDGE, _POD))


def _ip(network: str, *commands: str) -> None:
    with system.inside(network):
        subprocess.run(
            ["ip", "-batch", "-"], input="\n".join(commands).encode(), check=True, timeout=100
        )
