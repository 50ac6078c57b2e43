"""`runwatch.compat.mldiagnostics.utils.libtpu_utils.libtpu_metric`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.libtpu_utils.libtpu_metric import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.libtpu_utils.libtpu_metric

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.libtpu_utils.libtpu_metric
