"""`runwatch.monitoring`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.monitoring import *  # noqa: F403
else:
    import runwatch.monitoring

    sys.modules[__name__] = runwatch.monitoring
