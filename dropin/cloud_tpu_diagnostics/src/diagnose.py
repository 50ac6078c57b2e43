from runwatch.compat.tpu_diagnostics.debug import start_debugging, stop_debugging
from runwatch.compat.tpu_diagnostics.diagnostic import diagnose

__all__ = ["diagnose", "start_debugging", "stop_debugging"]
