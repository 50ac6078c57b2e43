"""What every test may count on."""

from __future__ import annotations

import signal

from hypothesis import settings

# The same examples everywhere; how long one takes only says what else the machine does.
settings.register_profile("runwatch", deadline=None, derandomize=True, database=None)
settings.load_profile("runwatch")

# A shell without job control starts what runs in the background with Ctrl-C ignored, and children
# inherit that: programs under test would never be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
