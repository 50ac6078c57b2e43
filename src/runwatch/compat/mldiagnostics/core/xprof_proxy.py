"""The original's proxy, by which one port asks all processes of a host for a profile.

Here each process has a port of its own, 9999 plus its local rank, and whoever captures asks them
all at once; so there is nothing to pass on.
"""

from __future__ import annotations

import logging
from typing import Final

from runwatch.compat.mldiagnostics.core.xprof import (
    PORT,
    start_on_demand_xprof,
    stop_on_demand_xprof,
)

logger = logging.getLogger("google_cloud_mldiagnostics.core.xprof_proxy")

PROFILE_METHOD: Final = "/tensorflow.ProfilerService/Profile"
DEFAULT_BASE_INTERNAL_PORT: Final = 10000


def get_internal_port(local_rank: int, base_port: int = DEFAULT_BASE_INTERNAL_PORT) -> int:
    return base_port + local_rank


class OnDemandXprofProxyHandler:
    def __init__(
        self, local_world_size: int, base_internal_port: int = DEFAULT_BASE_INTERNAL_PORT
    ) -> None:
        self.local_world_size = local_world_size
        self.base_internal_port = base_internal_port

    def service(self, handler_call_details: object) -> None:
        """None, which is gRPC's "somebody else answers that"."""


class OnDemandXprofProxyServer:
    """The port of this process itself."""

    def __init__(
        self,
        port: int = PORT,
        local_world_size: int = 1,
        base_internal_port: int = DEFAULT_BASE_INTERNAL_PORT,
    ) -> None:
        self.port = port

    def start(self) -> None:
        start_on_demand_xprof(self.port)

    def stop(self, grace: float = 1.0) -> None:
        stop_on_demand_xprof()
