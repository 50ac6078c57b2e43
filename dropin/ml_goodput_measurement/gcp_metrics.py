"""`runwatch.compat.goodput.gcp_metrics`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.goodput.gcp_metrics import *  # noqa: F403
else:
    import runwatch.compat.goodput.gcp_metrics

    sys.modules[__name__] = runwatch.compat.goodput.gcp_metrics
