"""OTLP over gRPC: the three services of OpenTelemetry, on the head's own port and on another."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import grpc

from runwatch.errors import RunwatchError, WireError
from runwatch.head.access.admission import PROJECTS, address_of
from runwatch.head.features.otlp.book import Peer
from runwatch.head.features.otlp.receiver import RETRY_SECONDS, Envelope, Receiver, Refused
from runwatch.wire.otlp import FORMS, response, status_bytes
from runwatch.wire.otlp_values import Signal

Context: TypeAlias = grpc.aio.ServicerContext


class OtlpServices:
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def handlers(self) -> list[Any]:
        return [
            grpc.method_handlers_generic_handler(
                form.service,
                {
                    "Export": grpc.unary_unary_rpc_method_handler(
                        partial(self._export, signal),
                        request_deserializer=bytes,  # read in a thread, not in the event loop
                        response_serializer=form.response.SerializeToString,
                    )
                },
            )
            for signal, form in FORMS.items()
        ]

    async def _export(self, signal: Signal, body: bytes, context: Context) -> Any:
        peer = Peer(*address_of(context.peer()))
        envelope = Envelope(signal, body, peer=peer, projects=PROJECTS.get())
        try:
            answer = await self._receiver.receive(envelope)
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Refused as error:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except RunwatchError as error:
            await self._again(context, str(error))
        return response(signal, answer.rejected, answer.why)

    async def _again(self, context: Context, why: str) -> None:
        code = grpc.StatusCode.UNAVAILABLE
        details = status_bytes(code.value[0], why, RETRY_SECONDS)
        await context.abort(code, why, (("grpc-status-details-bin", details),))
