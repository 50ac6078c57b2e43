"""OTLP over HTTP, and the control plane of google-cloud-mldiagnostics: routes below /v1."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from runwatch.errors import RunwatchError, WireError
from runwatch.head.context import Context, Feature
from runwatch.head.features.otlp.book import peer_of
from runwatch.head.features.otlp.receiver import RETRY_SECONDS, Envelope, Receiver, Refused
from runwatch.head.features.otlp.runs_api import MlRunRoutes
from runwatch.head.http.access import CALLER
from runwatch.head.http.answering import routed
from runwatch.record import JournalId
from runwatch.wire.otlp_values import JSON, LARGEST, PROTOBUF, SIGNALS, Signal, TooLarge, unpacked

_CODES: Final = {400: 3, 403: 7, 413: 3, 415: 3, 503: 14}
"""The gRPC code that an error's body has."""


class OtlpApi(Feature):
    def __init__(self, context: Context) -> None:
        self.receiver = Receiver(context.ingest, context.reading.clock)
        self._runs = MlRunRoutes(context, self.receiver)

    def routes(self) -> list[Route]:
        return [self._route(signal) for signal in SIGNALS] + self._runs.routes()

    def _route(self, signal: Signal) -> Route:
        path = f"/v1/{signal}"
        return Route(path, routed(path, partial(self._export, signal)), methods=["POST"])

    def alive(self) -> set[JournalId]:
        return self.receiver.alive()

    def gone(self) -> set[JournalId]:
        return self.receiver.gone()

    def close(self) -> None:
        self.receiver.close()

    async def _export(self, signal: Signal, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (PROTOBUF, JSON):
            return _error(415, f"content type {kind[:80]!r}: send {PROTOBUF} or {JSON}", JSON)
        try:
            body = await _body(request)
            token = request.scope[CALLER].token
            projects = token.projects if token is not None else ()
            envelope = Envelope(signal, body, kind, peer_of(request), projects)
            answer = await self.receiver.receive(envelope)
        except TooLarge as error:
            return _error(413, str(error), kind)
        except WireError as error:
            return _error(400, str(error), kind)
        except Refused as error:
            return _error(403, str(error), kind)
        except RunwatchError as error:
            return _error(503, str(error), kind)
        from runwatch.wire.otlp import as_bytes, response

        told = response(signal, answer.rejected, answer.why)
        return Response(as_bytes(told, kind), media_type=kind)


async def _body(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > LARGEST:
            raise TooLarge(f"the request has more than {LARGEST} bytes")
        pieces.append(piece)
    body, packing = b"".join(pieces), request.headers.get("content-encoding", "identity").lower()
    if packing == "gzip":
        return unpacked(body)
    if packing not in ("", "identity"):
        raise WireError(f"content encoding {packing[:80]!r}: send gzip, or none")
    return body


def _error(status: int, why: str, kind: str) -> Response:
    retry = RETRY_SECONDS if status == 503 else 0
    headers = {"Retry-After": str(retry)} if retry else {}
    body: Any
    if kind == PROTOBUF:
        from runwatch.wire.otlp import status_bytes

        body = status_bytes(_CODES[status], why, retry)
    else:
        body = msgspec.json.encode({"code": _CODES[status], "message": why})
    return Response(body, status, headers, media_type=kind)
