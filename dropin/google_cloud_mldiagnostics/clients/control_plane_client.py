"""`runwatch.compat.mldiagnostics.clients.control_plane_client`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.clients.control_plane_client import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.clients.control_plane_client

    sys.modules[__name__] = runwatch.compat.mldiagnostics.clients.control_plane_client
