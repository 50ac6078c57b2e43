"""`runwatch.compat.mldiagnostics.core.create_mlrun`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.core.create_mlrun import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.core.create_mlrun

    sys.modules[__name__] = runwatch.compat.mldiagnostics.core.create_mlrun
