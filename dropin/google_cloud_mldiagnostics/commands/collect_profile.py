"""Capture a profile of several hosts."""

import sys

from runwatch.compat.mldiagnostics.commands.collect_profile import (
    DEFAULT_NUM_TRACING_ATTEMPTS,
    main,
)

__all__ = ["DEFAULT_NUM_TRACING_ATTEMPTS", "main"]

if __name__ == "__main__":
    sys.exit(main())
