"""`runwatch.gcp_metrics`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.gcp_metrics import *  # noqa: F403
else:
    import runwatch.gcp_metrics

    sys.modules[__name__] = runwatch.gcp_metrics
