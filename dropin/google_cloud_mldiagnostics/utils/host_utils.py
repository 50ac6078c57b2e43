"""`runwatch.compat.mldiagnostics.utils.host_utils`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.utils.host_utils import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.utils.host_utils

    sys.modules[__name__] = runwatch.compat.mldiagnostics.utils.host_utils
