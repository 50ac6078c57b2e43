"""`runwatch.monitoring_elastic`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.monitoring_elastic import *  # noqa: F403
else:
    import runwatch.monitoring_elastic

    sys.modules[__name__] = runwatch.monitoring_elastic
