"""What a sender is told over gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from runwatch.clock import system_clock
from runwatch.errors import StoreBusy, WireError
from runwatch.head.features.otlp.grpc import OtlpServices
from runwatch.head.features.otlp.receiver import Answer, Busy, Envelope, Receiver, Refused
from runwatch.wire.otlp import FORMS, response, status_bytes
from runwatch.wire.otlp_values import SIGNALS, Signal


class Told(Receiver):
    """Answers what the test wants."""

    def __init__(self, outcome: Answer | Exception) -> None:
        super().__init__(None, system_clock)
        self._outcome = outcome
        self.heard: list[Envelope] = []

    async def receive(self, envelope: Envelope) -> Answer:
        self.heard.append(envelope)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


async def asked(receiver: Receiver, signal: Signal) -> Any:
    """The answer's bytes; or the code, the words and the details of an error."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(tuple(OtlpServices(receiver).handlers()))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            return await channel.unary_unary(f"/{FORMS[signal].service}/Export")(
                b"body", timeout=100
            )
    except grpc.aio.AioRpcError as error:
        details = dict(error.trailing_metadata()).get("grpc-status-details-bin")
        return error.code().name, error.details(), details
    finally:
        await server.stop(None)


@pytest.mark.parametrize("signal", SIGNALS)
def test_what_was_set_aside_is_told(signal: Signal) -> None:
    receiver = Told(Answer(3, "no time"))
    answer = asyncio.run(asked(receiver, signal))
    assert answer == response(signal, 3, "no time").SerializeToString()
    (envelope,) = receiver.heard
    assert (envelope.signal, envelope.body, envelope.peer.address) == (signal, b"body", "127.0.0.1")


@pytest.mark.parametrize(
    ("outcome", "code", "details"),
    [
        (Busy("much to do"), "UNAVAILABLE", status_bytes(14, "much to do", 5)),
        (StoreBusy("stopping"), "UNAVAILABLE", status_bytes(14, "stopping", 5)),
        (Refused("another project"), "PERMISSION_DENIED", None),
        (WireError("malformed"), "INVALID_ARGUMENT", None),
    ],
)
def test_who_is_to_come_again_is_told_when(
    outcome: Exception, code: str, details: bytes | None
) -> None:
    assert asyncio.run(asked(Told(outcome), "logs")) == (code, str(outcome), details)
