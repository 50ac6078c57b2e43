"""`runwatch.compat.mldiagnostics.utils.gcp`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.gcp import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.gcp

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.gcp
