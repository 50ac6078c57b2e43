"""`runwatch.compat.mldiagnostics.utils.gpu_utils.gpu_metric`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.gpu_utils.gpu_metric import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.gpu_utils.gpu_metric

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.gpu_utils.gpu_metric
