"""The version of the Runwatch that provides these names."""

from runwatch import __version__

__all__ = ["__version__", "get_version"]


def get_version() -> str:
    return __version__
