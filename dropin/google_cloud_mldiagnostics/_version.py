"""The version of google-cloud-mldiagnostics whose interface this is; Runwatch has its own."""

__all__ = ["__version__", "get_version"]

__version__ = "1.0.10"


def get_version() -> str:
    return __version__
