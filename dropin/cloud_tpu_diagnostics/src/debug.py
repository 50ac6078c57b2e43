"""Without a block: start and stop."""

from runwatch.compat.tpu_diagnostics.debug import (
    send_user_signal,
    start_debugging,
    stop_debugging,
)

__all__ = ["send_user_signal", "start_debugging", "stop_debugging"]
