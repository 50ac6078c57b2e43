"""Found as `google.cloud.logging.handlers` where google-cloud-logging is not installed."""

from runwatch.compat.cloud_logging.client import (
    DEFAULT_LOGGER_NAME,
    CloudLoggingHandler,
    setup_logging,
)

__all__ = ["DEFAULT_LOGGER_NAME", "CloudLoggingHandler", "setup_logging"]
