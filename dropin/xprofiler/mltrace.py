"""A job's log on a timeline."""

import sys

from runwatch.compat.xprofiler.mltrace.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
