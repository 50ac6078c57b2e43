"""`runwatch.compat.mldiagnostics.clients.self_hosted_diagon_service_client`."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runwatch.compat.mldiagnostics.clients.self_hosted_diagon_service_client import *  # noqa: F403
else:
    import runwatch.compat.mldiagnostics.clients.self_hosted_diagon_service_client

    sys.modules[__name__] = runwatch.compat.mldiagnostics.clients.self_hosted_diagon_service_client
