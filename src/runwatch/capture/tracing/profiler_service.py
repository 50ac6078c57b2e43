"""The gRPC service by which TensorBoard, XProf and others ask a program for a profile.

`tensorflow.ProfilerService/Profile`, spoken by JAX's and TensorFlow's own servers.  Both ends are
here: `ProfilerService` serves it, `profile` asks one program, `profile_all` several at the same
moment.
"""

from __future__ import annotations

import queue
import re
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from google.protobuf.message import DecodeError

from runwatch.errors import RunwatchError
from runwatch.wire import profiler_pb2 as pb

SERVICE: Final = "tensorflow.ProfilerService"
MAX_ANSWER: Final = 2**31 - 1
MAX_QUESTION: Final = 1 << 20
REACH_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 60.0
"""What a program gets for putting its trace together, on top of the time it records."""
_BUSY: Final = re.compile("another profil|only one profile|session (is )?active", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    duration_ms: int = 0
    session_id: str = ""
    repository_root: str = ""
    host_name: str = ""
    emit_xspace: bool = False
    """The trace itself is wanted as the answer."""


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    xspace: bytes = b""
    tools: tuple[tuple[str, bytes], ...] = ()
    """Files that are no xplane, by name."""
    written: bool = False
    """The files are in the folder that was asked for."""


class CannotProfile(RunwatchError):
    """The reason is told to whoever asked."""


class NothingListens(CannotProfile):
    """No program there, or none that can be reached."""


class NoProfiler(CannotProfile):
    """Something listens, but no profiler service."""


class ProfilerBusy(CannotProfile):
    """The program is being profiled already; by and by it can be asked again."""


Profile = Callable[[ProfileRequest], ProfileAnswer]


def read_request(message: bytes) -> ProfileRequest:
    """Raises DecodeError for what is no request."""
    request = pb.ProfileRequest.FromString(message)
    return ProfileRequest(
        duration_ms=request.duration_ms,
        session_id=request.session_id or request.opts.session_id,
        repository_root=request.repository_root,
        host_name=request.host_name,
        emit_xspace=request.emit_xspace,
    )


def write_answer(answer: ProfileAnswer) -> bytes:
    message: bytes = pb.ProfileResponse(
        tool_data=[pb.ProfileToolData(name=name, data=data) for name, data in answer.tools],
        xspace=[answer.xspace] if answer.xspace else [],
        empty_trace=not (answer.tools or answer.xspace or answer.written),
    ).SerializeToString()
    return message


class ProfilerService:
    """Serves one address from `start` to `stop`; calls `profile` in a thread of its own."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._server: Any = None

    def start(self, address: str) -> None:
        """Raises OSError if the address is taken, ImportError without grpc."""
        # Not an import statement: who does not serve this never loads it.
        grpc: Any = import_module("grpc")

        def answer(message: bytes, context: Any) -> bytes:
            try:
                return write_answer(self._profile(read_request(message)))
            except CannotProfile as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            except DecodeError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no profile request: {error}")
            raise AssertionError("abort raises")

        methods = {
            "Profile": grpc.unary_unary_rpc_method_handler(answer),
            "Terminate": grpc.unary_unary_rpc_method_handler(lambda *_: b""),  # see `check`
        }
        server = grpc.server(
            ThreadPoolExecutor(2, thread_name_prefix="runwatch-profile-port"),
            handlers=[grpc.method_handlers_generic_handler(SERVICE, methods)],
            options=[
                ("grpc.so_reuseport", 0),  # two processes on one port: an arbitrary one answers
                ("grpc.max_send_message_length", MAX_ANSWER),
                ("grpc.max_receive_message_length", MAX_QUESTION),
            ],
        )
        try:
            bound = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"the port is taken: {error}") from None
        if not bound:
            raise OSError("the port is taken")
        server.start()
        self._server = server

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.stop(None).wait(5)


# ── asking ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TracerLevels:
    """How closely host, device and Python are looked at: 0 = not at all."""

    host: int = 2
    device: int = 1
    python: int = 0


USUAL: Final = TracerLevels()


@dataclass(frozen=True, slots=True)
class PortTarget:
    """A program that serves a profiler port."""

    address: str
    """`host:port`"""
    host_name: str
    """What the host is called in the trace."""


def profile(
    address: str,
    duration_ms: int,
    name: str,
    host_name: str,
    levels: TracerLevels = USUAL,
    *,
    start_ns: int = 0,
    seconds: float | None = None,
) -> bytes:
    """The XSpace of the program that serves this address; raises CannotProfile.

    `name`: the profile's.  `start_ns`: not before this moment of our own clock.  `seconds`: how
    long to wait for the trace once its time is over.
    """
    answer = profile_all(
        [PortTarget(address, host_name)], duration_ms, name, levels, start_ns=start_ns,
        seconds=seconds,
    )[0]  # fmt: skip
    if isinstance(answer, CannotProfile):
        raise answer
    if not answer.xspace:
        raise CannotProfile(f"{address} answered, but its trace is empty")
    return answer.xspace


def profile_all(
    targets: Sequence[PortTarget],
    duration_ms: int,
    name: str,
    levels: TracerLevels = USUAL,
    *,
    start_ns: int = 0,
    seconds: float | None = None,
) -> list[ProfileAnswer | CannotProfile]:
    """One answer, or why there is none, for each; all begin at the same moment.

    Every connection is made before the first question is asked.
    """
    reached = _reach_all([target.address for target in targets])
    patience = duration_ms / 1e3 + (WRITE_SECONDS if seconds is None else seconds)
    try:
        time.sleep(max(0, start_ns - time.time_ns()) / 1e9)
        calls = [
            channel
            if isinstance(channel, CannotProfile)
            else _call(channel, "Profile", write_request(target, duration_ms, name, levels),
                       patience)
            for target, channel in zip(targets, reached, strict=True)
        ]  # fmt: skip
        return [
            call if isinstance(call, CannotProfile) else _answered(call, target.address)
            for target, call in zip(targets, calls, strict=True)
        ]
    finally:
        _close(reached)


def check(address: str) -> None:
    """Raises CannotProfile unless a profiler service answers there; asks for no profile."""
    reached = _reach_all([address])
    try:
        if isinstance(reached[0], CannotProfile):
            raise reached[0]
        # To end a session that is not there: the one question that costs the program nothing.
        nobody = pb.TerminateRequest(session_id="none").SerializeToString()
        outcome = _answered(_call(reached[0], "Terminate", nobody, REACH_SECONDS), address)
        if isinstance(outcome, CannotProfile):
            raise outcome
    finally:
        _close(reached)


def write_request(target: PortTarget, duration_ms: int, name: str, levels: TracerLevels) -> bytes:
    options = pb.ProfileOptions(
        host_tracer_level=levels.host,
        device_tracer_level=levels.device,
        python_tracer_level=levels.python,
        version=1,
        enable_hlo_proto=True,  # the programs' HLO too: operations get their names
        duration_ms=duration_ms,
        session_id=name,
        override_hostname=target.host_name,
    )
    message: bytes = pb.ProfileRequest(
        duration_ms=duration_ms,
        opts=options,
        session_id=name,
        host_name=target.host_name,
        emit_xspace=True,  # the trace is the answer, and nothing is written over there
    ).SerializeToString()
    return message


def read_answer(message: bytes) -> ProfileAnswer:
    """Raises DecodeError for what is no answer."""
    answer = pb.ProfileResponse.FromString(message)
    tools = tuple((tool.name, tool.data) for tool in answer.tool_data)
    return ProfileAnswer(b"".join(answer.xspace), tools)


def _reach_all(addresses: Sequence[str]) -> list[Any]:
    """An open channel, or CannotProfile, for each."""
    with ThreadPoolExecutor(max(1, min(64, len(addresses)))) as pool:
        return list(pool.map(_reach, addresses))


def _reach(address: str) -> Any:
    grpc: Any = import_module("grpc")
    try:
        _touch(address)
    except CannotProfile as error:
        return error
    channel = grpc.insecure_channel(
        address,
        options=[
            ("grpc.max_receive_message_length", MAX_ANSWER),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),  # what failed a moment ago is tried again
        ],
    )
    heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
    channel.subscribe(heard.put, try_to_connect=True)
    decided = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    deadline = time.monotonic() + REACH_SECONDS
    state = None
    while state not in decided:
        try:
            state = heard.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            break
    channel.unsubscribe(heard.put)
    if state is grpc.ChannelConnectivity.READY:
        return channel
    channel.close()
    return NoProfiler(f"{address} answers, but is not a profiler service")


def _touch(address: str) -> None:
    """gRPC tells a closed port and a strange one apart only by words that change."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or not 0 < int(port) < 65536:
        raise CannotProfile(f"{address!r} is no address: host:port")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except TimeoutError:
        raise NothingListens(f"no answer from {address} within {REACH_SECONDS:.0f} s") from None
    except ConnectionRefusedError:
        raise NothingListens(
            f"nothing listens on {address}: the program serves a port with "
            "jax.profiler.start_server, or with on_demand_xprof=True"
        ) from None
    except OSError as error:
        raise NothingListens(f"cannot reach {address}: {error}") from None


def _call(channel: Any, method: str, message: bytes, seconds: float) -> Any:
    return channel.unary_unary(f"/{SERVICE}/{method}").future(message, timeout=seconds)


def _answered(call: Any, address: str) -> ProfileAnswer | CannotProfile:
    grpc: Any = import_module("grpc")
    try:
        return read_answer(call.result())
    except grpc.RpcError as error:
        return _refused(grpc.StatusCode, error, address)
    except DecodeError:
        return NoProfiler(f"{address} answers, but is not a profiler service")


def _refused(codes: Any, error: Any, address: str) -> CannotProfile:
    details = " ".join((error.details() or "").split())[:500]
    if error.code() is codes.UNIMPLEMENTED:
        return NoProfiler(f"{address} answers, but is not a profiler service")
    if _BUSY.search(details):
        return ProfilerBusy(f"{address}: another profiling session is active")
    if error.code() is codes.DEADLINE_EXCEEDED:
        return CannotProfile(f"{address} sent no trace in time")
    if error.code() is codes.UNAVAILABLE:
        return CannotProfile(f"{address} went away while it was profiled: {details}")
    return CannotProfile(f"{address} cannot be profiled: {details or error.code().name}")


def _close(reached: Sequence[Any]) -> None:
    for channel in reached:
        if not isinstance(channel, CannotProfile):
            channel.close()
