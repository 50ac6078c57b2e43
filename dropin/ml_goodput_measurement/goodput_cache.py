"""`runwatch.compat.goodput.goodput_cache`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.goodput.goodput_cache import *  # noqa: F403
else:
    import runwatch.compat.goodput.goodput_cache

    sys.modules[__name__] = runwatch.compat.goodput.goodput_cache
