"""`runwatch.compat.mldiagnostics.exporters.cloud_logging`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.exporters.cloud_logging import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.exporters.cloud_logging

    sys.modules[__name__] = runwatch.compat.mldiagnostics.exporters.cloud_logging
