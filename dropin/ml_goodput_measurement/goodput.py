"""`runwatch.goodput`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.goodput import *  # noqa: F403
else:
    import runwatch.goodput

    sys.modules[__name__] = runwatch.goodput
