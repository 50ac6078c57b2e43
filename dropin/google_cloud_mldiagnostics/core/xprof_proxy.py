"""`runwatch.compat.mldiagnostics.core.xprof_proxy`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.core.xprof_proxy import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.core.xprof_proxy

    sys.modules[__name__] = runwatch.compat.mldiagnostics.core.xprof_proxy
