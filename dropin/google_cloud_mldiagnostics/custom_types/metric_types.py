"""`runwatch.compat.mldiagnostics.custom_types.metric_types`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.custom_types.metric_types import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.custom_types.metric_types

    sys.modules[__name__] = runwatch.compat.mldiagnostics.custom_types.metric_types
