"""What gRPC's own log says of calls."""

from __future__ import annotations

import asyncio
import logging

from runwatch.head.stream import is_no_cancellation


def told(error: BaseException | None) -> logging.LogRecord:
    about = None if error is None else (type(error), error, None)
    return logging.LogRecord("grpc", logging.ERROR, "", 0, "not handled", (), about)


def test_a_call_that_was_cancelled_is_not_told_and_everything_else_is() -> None:
    assert not is_no_cancellation(told(asyncio.CancelledError()))
    assert is_no_cancellation(told(ValueError("x")))
    assert is_no_cancellation(told(None))
