"""The way to a program that serves a profiler port (`jax.profiler.start_server`).

The program sends its trace as the answer; the agent puts it where profiles go.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runwatch.agent.errands.profile_ways import LABEL, LocalTarget, Recording, WayPreflight, Writing
from runwatch.agent.listening import Port, owners_of, ports_of
from runwatch.capture import process
from runwatch.capture.tracing.profile_files import as_host
from runwatch.capture.tracing.profiler_service import (
    CannotProfile,
    PortTarget,
    ProfileAnswer,
    check,
    profile_all,
)
from runwatch.capture.tracing.trace_checks import xplane_problems, xplane_window
from runwatch.capture.tracing.traces import KINETO, XPLANE
from runwatch.journal.liveness import PROC
from runwatch.record.capture_limits import DEFAULT_MS, PROFILER_PORTS, WRITE_SECONDS
from runwatch.record.control import ProfileStart

_LIBRARIES: Final = {
    "jax": b"/jaxlib/", "torch": b"/libtorch_cpu.", "torch_xla": b"/_XLAC.",
    "tensorflow": b"/libtensorflow",
}  # fmt: skip


class PortWay(Writing):
    name = "port"

    def preflight(self, target: LocalTarget) -> WayPreflight:
        whys: list[str] = []
        for address in self._addresses(target):
            try:
                check(address)
            except CannotProfile as error:
                whys.append(str(error))
                continue
            loaded = dict.fromkeys(name for pid in target.tree for name in _frameworks(pid))
            return WayPreflight(address=address, warning=_shared(address), frameworks=tuple(loaded))
        return WayPreflight(
            "; ".join(whys) or "it serves no profiler port (jax.profiler.start_server)"
        )

    def _addresses(self, target: LocalTarget) -> list[str]:
        """Its own ports, the likely ones first; a port that was named but is nobody's, too."""
        likely = (*target.ports, *PROFILER_PORTS)
        ports = [port for pid in target.tree for port in _may_be_profiler(pid, likely)]
        ports.sort(key=lambda port: (port.number not in likely, port.number))
        own = list(dict.fromkeys(port.address for port in ports))
        named = [] if target.pid else [f"127.0.0.1:{number}" for number in target.ports]
        return own + named

    def record(
        self, target: LocalTarget, request: ProfileStart, preflight: WayPreflight
    ) -> Recording:
        clock = self.context.clock
        recording = Recording(self.name, framework="+".join(preflight.frameworks) or "xla")
        if preflight.warning:
            recording.problems.append(preflight.warning)
        if request.duration_ms is None:
            seconds = DEFAULT_MS / 1e3
            recording.problems.append(
                f"a profiler port counts no steps: {seconds:g} s were captured"
            )
        recording.start_ns = max(request.start_ns, clock.wall_ns())
        recording.end_ns = recording.start_ns + request.window_ms * 1_000_000
        name = next(target.stems())
        with self.recorded(target, request, recording):
            (answer,) = profile_all(
                [PortTarget(preflight.address, name)], request.window_ms, request.session,
                start_ns=request.start_ns, seconds=WRITE_SECONDS,
            )  # fmt: skip
            if isinstance(answer, CannotProfile):
                return recording.failed(str(answer))
            if not answer.xspace and not answer.tools:
                return recording.failed(f"{preflight.address} answered, but its trace is empty")
            return self.published(
                target, request, recording, lambda to: _unpack(answer, to, recording)
            )


def _unpack(answer: ProfileAnswer, folder: Path, recording: Recording) -> list[Path]:
    files = []
    if answer.xspace:
        file = folder / f"{LABEL}{XPLANE}"
        file.write_bytes(answer.xspace)
        recording.problems += xplane_problems(file, "")
        # When it really began: it may have been asked late, and takes a while itself.
        if window := xplane_window(file):
            recording.start_ns, recording.end_ns = window
        files.append(file)
    for name, data in answer.tools:
        ending = KINETO if name.endswith(KINETO) else f".{as_host(name)}"
        (folder / f"{LABEL}{ending}").write_bytes(data)
        files.append(folder / f"{LABEL}{ending}")
    return files


def _may_be_profiler(pid: int, likely: Sequence[int]) -> list[Port]:
    """A strange port is not knocked at: a rendezvous of PyTorch or NCCL may take it badly.

    JAX and TensorFlow listen on every interface, and their other ports speak gRPC as well.
    """
    ports = ports_of(pid)
    known = [port for port in ports if port.number in likely]
    frameworks = [] if len(known) == len(ports) else _frameworks(pid)
    if not frameworks or "torch" in frameworks:
        return known
    return known + [port for port in ports if port.anywhere and port not in known]


def _frameworks(pid: int) -> list[str]:
    """By the libraries that it has loaded."""
    try:
        with process.as_its_user(pid):
            maps = (PROC / str(pid) / "maps").read_bytes()
    except OSError:
        return []
    return [name for name, library in _LIBRARIES.items() if library in maps]


def _shared(address: str) -> str:
    port = int(address.rpartition(":")[2])
    owners = owners_of(port)
    if len(owners) < 2:
        return ""
    who = ", ".join(map(str, owners))
    return f"processes {who} share port {port}: which of them answers is chance"
