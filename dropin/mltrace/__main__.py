from __future__ import annotations

import sys

from xprofiler.mltrace import main

if __name__ == "__main__":
    sys.exit(main())
