"""Capture a profile of several hosts."""

import sys

from runwatch.compat.mldiagnostics.commands.collect_profile import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
