from __future__ import annotations

import sys

from runwatch.compat.xprofiler.command import main

if __name__ == "__main__":
    sys.exit(main())
