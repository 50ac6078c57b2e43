"""The original's clients; what they are given is recorded in the current run."""

from runwatch.compat.submodules import submodules

__getattr__, __dir__ = submodules(
    __name__, "control_plane_client", "logging_client", "self_hosted_diagon_service_client"
)
