"""`runwatch.compat.mldiagnostics.exporters.base_exporter`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.exporters.base_exporter import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.exporters.base_exporter

    sys.modules[__name__] = runwatch.compat.mldiagnostics.exporters.base_exporter
