"""The sessions of a directory: from its head over gRPC where that has no HTTP port, else as every
command of Runwatch gets them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc

from runwatch.address import read_address
from runwatch.compat.gswarm.remote import Remote
from runwatch.errors import HeadUnreachable, NotFound, RunwatchError
from runwatch.views.sessions import check_name

_SERVICE = "/runwatch.v1.Sessions/"


class Sessions(Protocol):
    name: str

    def all(self) -> list[dict[str, Any]]: ...
    def one(self, key: str) -> dict[str, Any]: ...
    def resume(self, key: str) -> dict[str, Any]: ...
    def export(self, key: str, compat: bool) -> Iterator[bytes]: ...


@contextmanager
def sessions_of(root: Path) -> Iterator[Sessions]:
    at = read_address(root)
    if at is not None and at.grpc and not at.http:
        head = _OverGrpc(at.grpc, at.token)
        if head.answers():  # one that was killed leaves its address behind
            yield head
            return
    from runwatch.cli import source

    with source.open_source(argparse.Namespace(dir=root, head=None)) as found:
        yield _FromSource(found)


class _FromSource:
    def __init__(self, head: Any) -> None:
        self._head = head
        self.name = head.name

    def all(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._head.get("/sessions")["sessions"]
        return found

    def one(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self._head.get(f"/sessions/{check_name(key)}")
        return found

    def resume(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self._head.post(f"/sessions/{key}/resume", {})
        return found

    def export(self, key: str, compat: bool) -> Iterator[bytes]:
        units = "gswarm" if compat else None
        pieces: Iterator[bytes] = self._head.stream(f"/sessions/{key}/export", compat=units)
        return pieces


class _OverGrpc:
    def __init__(self, address: str, token: str) -> None:
        self._remote = Remote(address, token)
        self.name = address

    def answers(self) -> bool:
        try:
            self._remote.status(seconds=3.0)
        except RunwatchError:
            return False
        return True

    def all(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ask("List")["sessions"]
        return found

    def one(self, key: str) -> dict[str, Any]:
        return self._ask("One", key=check_name(key))

    def resume(self, key: str) -> dict[str, Any]:
        return self._ask("Resume", key=key)

    def export(self, key: str, compat: bool) -> Iterator[bytes]:
        with self._remote.channel() as channel:
            call = channel.stream_stream(_SERVICE + "Export")
            asked = iter([json.dumps({"key": key, "compat": compat}).encode()])
            try:
                yield from call(asked, metadata=self._remote.metadata)
            except grpc.RpcError as error:
                raise self._refused(error) from error

    def _ask(self, method: str, **question: str) -> dict[str, Any]:
        with self._remote.channel() as channel:
            call = channel.unary_unary(_SERVICE + method)
            said = json.dumps(question).encode()
            try:
                answer = call(said, timeout=60.0, metadata=self._remote.metadata)
            except grpc.RpcError as error:
                raise self._refused(error) from error
        found: dict[str, Any] = json.loads(answer)
        return found

    def _refused(self, error: Any) -> Exception:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return NotFound(error.details())
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return HeadUnreachable(
                f"the head at {self.name} has no HTTP port and is too old to be asked without; "
                "restart it"
            )
        return self._remote.refused(error)
