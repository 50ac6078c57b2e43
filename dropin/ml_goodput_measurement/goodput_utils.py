"""`runwatch.goodput_utils`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.goodput_utils import *  # noqa: F403
else:
    import runwatch.goodput_utils

    sys.modules[__name__] = runwatch.goodput_utils
