"""`python -m runwatch`: the command, where its script is not on the path."""

from __future__ import annotations

import sys

from runwatch.cli.__main__ import main

sys.exit(main())
