"""`runwatch.compat.goodput.monitoring`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.goodput.monitoring import *  # noqa: F403
else:
    import runwatch.compat.goodput.monitoring

    sys.modules[__name__] = runwatch.compat.goodput.monitoring
