"""`runwatch.exclusion_utils`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.exclusion_utils import *  # noqa: F403
else:
    import runwatch.exclusion_utils

    sys.modules[__name__] = runwatch.exclusion_utils
