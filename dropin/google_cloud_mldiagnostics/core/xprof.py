"""`runwatch.compat.mldiagnostics.core.xprof`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.core.xprof import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.core.xprof

    sys.modules[__name__] = runwatch.compat.mldiagnostics.core.xprof
