"""Commands that ask a head, over gRPC or HTTP."""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from runwatch.address import Address, token_for
from runwatch.compat.gswarm.command import DATA
from runwatch.errors import HeadUnreachable, RunwatchError, UsageError
from runwatch.settings import token_of
from runwatch.ship.client import METHOD
from runwatch.ship.finding import find
from runwatch.wire import gswarm_pb2 as pb

TIMEOUT_SECONDS: Final = 30.0
A_FEW: Final = 8
_SERVICE: Final = "/gswarm_profiler.ProfilerService/"
_DROPPED: Final = "runwatch-dropped-records"
_AWAITED: Final = "runwatch-awaited-clients"
_UNHEALTHY: Final = "runwatch-unhealthy-clients"
"""Metadata of a Runwatch head; no other head sends it."""
ASK_SECONDS: Final = 5.0
PATIENT_SECONDS: Final = 1.5
"""After this long without an answer a command says what it waits for."""


def _port_of_agents(head: str) -> Address:
    """The original's heads have it at 8090; a head of Runwatch has its page there, which knows."""
    address = Address.parse(head, default_port=8090)
    ca = os.environ.get("RUNWATCH_CA", "")
    try:
        return find(head, Path(ca).read_bytes() if ca else None).address
    except HeadUnreachable:
        return address


class Remote:
    """A head's gRPC port; a call opens a channel, asks, and closes it."""

    def __init__(self, head: str, token: str | None) -> None:
        self.address = _port_of_agents(head)
        self._token = token_for(head, DATA, token or token_of())

    def ask(self, method: str, request: Any, reply: Any, seconds: float = TIMEOUT_SECONDS) -> Any:
        return self._ask(method, request, reply, seconds)[0]

    def _ask(
        self, method: str, request: Any, reply: Any, seconds: float
    ) -> tuple[Any, dict[str, str | bytes]]:
        """The answer, and the metadata that came with it."""
        with self.channel() as channel:
            call = channel.unary_unary(
                _SERVICE + method,
                request_serializer=type(request).SerializeToString,
                response_deserializer=reply.FromString,
            )
            try:
                answer, call_end = call.with_call(request, timeout=seconds, metadata=self.metadata)
                return answer, dict(call_end.trailing_metadata() or ())
            except grpc.RpcError as error:
                raise self.refused(error) from error

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self._token}")] if self._token else []

    def takes_records(self) -> bool:
        """Whether it is a head of Runwatch: gswarm's own takes samples in its own way only."""
        with self.channel() as channel:
            stream = channel.stream_stream(METHOD)
            try:
                next(stream(iter(()), timeout=ASK_SECONDS, metadata=self.metadata), None)
            except grpc.RpcError as error:
                return bool(error.code() is not grpc.StatusCode.UNIMPLEMENTED)
        return True

    def channel(self) -> grpc.Channel:
        if not self.address.tls:
            return grpc.insecure_channel(self.address.target)
        ca = os.environ.get("RUNWATCH_CA", "")
        roots = Path(ca).read_bytes() if ca else None
        credentials = grpc.ssl_channel_credentials(root_certificates=roots)
        return grpc.secure_channel(self.address.target, credentials)

    def refused(self, error: Any) -> RunwatchError:
        gone = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        if error.code() in gone:
            return HeadUnreachable(f"no head answers at {self.address.target}")
        return UsageError(f"the head at {self.address.target} refuses: {error.details()}")

    def status(self, seconds: float = TIMEOUT_SECONDS) -> Any:
        return self.ask("GetStatus", pb.Empty(), pb.StatusResponse, seconds)

    def status_and_more(self) -> tuple[Any, int, Sequence[str]]:
        """The head's status, how many records its clients had to drop in all, and which clients
        are silent or behind."""
        status, metadata = self._ask("GetStatus", pb.Empty(), pb.StatusResponse, TIMEOUT_SECONDS)
        unhealthy = _names(metadata.get(_UNHEALTHY, "[]"))
        return status, int(metadata.get(_DROPPED, 0)), unhealthy

    def awaited(self) -> Sequence[str]:
        """The clients that a session which stops waits for."""
        metadata = self._ask("GetStatus", pb.Empty(), pb.StatusResponse, ASK_SECONDS)[1]
        return _names(metadata.get(_AWAITED, "[]"))


def _names(said: str | bytes) -> list[str]:
    return [str(name) for name in json.loads(said)]


def profile(arguments: argparse.Namespace) -> int:
    request = pb.StartProfilingRequest(name=_session_name(arguments.name))
    reply = Remote(arguments.head, arguments.token).ask(
        "StartProfiling", request, pb.StartProfilingResponse
    )
    return _print_outcome(reply.success, reply.message, reply.output_file)


def stop(arguments: argparse.Namespace) -> int:
    request = pb.StopProfilingRequest(name=_session_name(arguments.name))
    remote = Remote(arguments.head, arguments.token)
    with _progress(remote.awaited):
        reply = remote.ask("StopProfiling", request, pb.StopProfilingResponse)
    return _print_outcome(reply.success, reply.message)


@contextmanager
def _progress(awaited: Callable[[], Sequence[str]]) -> Iterator[None]:
    """While the head waits for what clients hold, say for whom, each time that it changes."""
    done = threading.Event()

    def look() -> None:
        said: Sequence[str] = ()
        while not done.wait(PATIENT_SECONDS):
            try:
                now = awaited()
            except (RunwatchError, ValueError, TypeError):
                continue  # the answer itself says what is wrong
            if now and now != said:
                who = ", ".join(now[:A_FEW]) + (" …" if len(now) > A_FEW else "")
                print(f"Waiting for what {len(now)} clients hold: {who}", file=sys.stderr)
                said = now

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _session_name(name: str | None) -> str:
    """On the wire no name and an empty one are the same, and mean all."""
    from runwatch.views.sessions import check_name

    return "" if name is None else check_name(name)


def status(arguments: argparse.Namespace) -> int:
    reply, dropped, unhealthy = Remote(arguments.head, arguments.token).status_and_more()
    _print_status(
        {
            "freq": reply.freq,
            "enable_bandwidth_profiling": reply.enable_bandwidth_profiling,
            "enable_nvlink_profiling": reply.enable_nvlink_profiling,
            "is_profiling": reply.is_profiling,
            "output_filename": reply.output_filename,
            "frame_id_counter": reply.frame_id_counter,
            "connected_clients": list(reply.connected_clients),
            "active_sessions": json.loads(reply.active_sessions_json or "[]"),
        }
    )
    if unhealthy:
        print(f"Unhealthy: {', '.join(unhealthy)}")
    if dropped:
        print(f"Dropped: {dropped:,} records while no head took them")
    return 0


def exit(arguments: argparse.Namespace) -> int:
    Remote(arguments.head, arguments.token).ask("Exit", pb.Empty(), pb.Empty)
    print("The head ends.")
    return 0


# ── over HTTP ──────────────────────────────────────────────────────────────────────────────────


def http_profile(arguments: argparse.Namespace) -> int:
    body = {} if arguments.name is None else {"name": arguments.name}
    reply = _http(arguments, "/profiling/start", body)
    return _print_outcome(reply["success"], reply["message"], reply["output_file"] or "")


def http_stop(arguments: argparse.Namespace) -> int:
    body = {} if arguments.name is None else {"name": arguments.name}
    with _progress(lambda: _http(arguments, "/status").get("awaited_clients", ())):
        reply = _http(arguments, "/profiling/stop", body)
    return _print_outcome(reply["success"], reply["message"])


def http_status(arguments: argparse.Namespace) -> int:
    _print_status(_http(arguments, "/status"))
    return 0


def _http(arguments: argparse.Namespace, path: str, body: Any = None) -> Any:
    return http(arguments.head, arguments.token, path, body)


def http(head: str, token: str | None, path: str, body: Any = None) -> Any:
    """What the head answers; `body` is sent to it."""
    head = head if "://" in head else f"http://{head}"
    token = token_for(head, DATA, token or token_of())
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(head.rstrip("/") + path, data=data, headers=headers)
    context = ssl.create_default_context(cafile=os.environ.get("RUNWATCH_CA") or None)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=context) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise UsageError(f"the head refuses: {_reason(error)}") from error
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise HeadUnreachable(f"no head answers at {head}: {reason}") from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}"


def _print_outcome(success: bool, message: str, output: str = "") -> int:
    if not success:
        print(f"gsprof: {message}", file=sys.stderr)
        return 1
    print(f"{message} Output: {output}" if output else message)
    return 0


def _print_status(status: dict[str, Any]) -> None:
    def switch(key: str) -> str:
        return "Enabled" if status[key] else "Disabled"

    print(f"Frequency: {status['freq']} ms")
    print(f"Bandwidth Profiling: {switch('enable_bandwidth_profiling')}")
    print(f"NVLink Profiling: {switch('enable_nvlink_profiling')}")
    print(f"Is Profiling: {'Yes' if status['is_profiling'] else 'No'}")
    print(f"Output Filename: {status['output_filename']}")
    print(f"Frame Counter: {status['frame_id_counter']}")
    for session in status.get("active_sessions", ()):
        print(f"  {session['name']}: {session['frame_count']} frames since {session['start_time']}")
    if "total_gpus" in status:
        print(f"Total GPUs: {status['total_gpus']}")
    print(f"Connected Clients: {len(status['connected_clients'])}")
    for client in status["connected_clients"]:
        dropped = status.get("dropped_records", {}).get(client, 0)
        lost = f": {dropped:,} records dropped while no head took them" if dropped else ""
        ill = " (unhealthy)" if client in status.get("unhealthy_clients", ()) else ""
        print(f"  {client}{ill}{lost}")


RUN: Final = {
    "profile": profile,
    "stop": stop,
    "status": status,
    "exit": exit,
    "http-profile": http_profile,
    "http-stop": http_stop,
    "http-status": http_status,
}
