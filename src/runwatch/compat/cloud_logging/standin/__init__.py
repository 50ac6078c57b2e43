"""Found as `google.cloud.logging` where google-cloud-logging is not installed."""

from runwatch.compat.cloud_logging.client import (
    ASCENDING,
    DESCENDING,
    Batch,
    Client,
    Logger,
    Resource,
)

from . import handlers

__all__ = ["ASCENDING", "DESCENDING", "Batch", "Client", "Logger", "Resource", "handlers"]
