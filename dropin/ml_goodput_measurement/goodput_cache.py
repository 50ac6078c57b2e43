"""`runwatch.goodput_cache`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.goodput_cache import *  # noqa: F403
else:
    import runwatch.goodput_cache

    sys.modules[__name__] = runwatch.goodput_cache
