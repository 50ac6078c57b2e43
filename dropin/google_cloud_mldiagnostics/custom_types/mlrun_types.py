"""`runwatch.compat.mldiagnostics.custom_types.mlrun_types`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.custom_types.mlrun_types import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.custom_types.mlrun_types

    sys.modules[__name__] = runwatch.compat.mldiagnostics.custom_types.mlrun_types
