"""`runwatch.compat.goodput.monitoring_elastic`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.goodput.monitoring_elastic import *  # noqa: F403
else:
    import runwatch.compat.goodput.monitoring_elastic

    sys.modules[__name__] = runwatch.compat.goodput.monitoring_elastic
