"""`runwatch.compat.goodput.goodput_exclusion`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.goodput.goodput_exclusion import *  # noqa: F403
else:
    import runwatch.compat.goodput.goodput_exclusion

    sys.modules[__name__] = runwatch.compat.goodput.goodput_exclusion
