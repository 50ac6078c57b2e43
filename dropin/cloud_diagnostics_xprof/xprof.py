"""The command and its parser; `python -m cloud_diagnostics_xprof.xprof` is `xprofiler`."""

import sys

from runwatch.compat.xprofiler.actions import KeyValueAction, XprofParser
from runwatch.compat.xprofiler.command import main

__all__ = ["KeyValueAction", "XprofParser", "main"]

if __name__ == "__main__":
    sys.exit(main())
