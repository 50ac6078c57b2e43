"""`SelfHostedDiagonServiceClient`: as `ControlPlaneClient`.

A Runwatch head takes the original's requests under `DIAGON_BASE_URL`; what runs on Runwatch itself
ships its journal to `RUNWATCH_HEAD`, and needs no second way there.
"""

from __future__ import annotations

import logging

from runwatch.compat.mldiagnostics.clients.control_plane_client import ControlPlaneClient

logger = logging.getLogger("google_cloud_mldiagnostics.clients.self_hosted_diagon_service_client")


class SelfHostedDiagonServiceClient(ControlPlaneClient):
    def __init__(self, control_plane_url: str, cluster_id: str | None = None) -> None:
        super().__init__("", "prod")
        self.control_plane_url = control_plane_url.rstrip("/")
        self.cluster_id = cluster_id
