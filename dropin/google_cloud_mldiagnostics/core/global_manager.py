"""`runwatch.compat.mldiagnostics.core.global_manager`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.core.global_manager import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.core.global_manager

    sys.modules[__name__] = runwatch.compat.mldiagnostics.core.global_manager
