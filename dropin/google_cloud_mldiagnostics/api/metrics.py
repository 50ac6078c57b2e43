"""`runwatch.compat.mldiagnostics.api.metrics`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.api.metrics import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.api.metrics

    sys.modules[__name__] = runwatch.compat.mldiagnostics.api.metrics
