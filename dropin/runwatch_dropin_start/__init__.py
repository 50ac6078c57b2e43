"""Loaded at the start of a Python that has the drop-in, or with the first of its packages.

The originals' guides import `google.cloud.logging` before anything of the originals, and make a
client of it.  From here on both work also without an account, or without that package: see
`runwatch.compat.cloud_logging`.  Nothing else of Python's imports is touched, and nothing of
Runwatch is loaded before a program asks for these names.
"""

from __future__ import annotations

import sys

NAMES = frozenset(
    (
        "google",
        "google.cloud",
        "google.cloud.logging",
        "google.cloud.logging_v2",
        "google.cloud.logging_v2.client",
    )
)


class Finder:
    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> object:
        if name not in NAMES:
            return None
        try:
            from runwatch.compat.cloud_logging.finding import found
        except (ImportError, OSError):
            return None  # Runwatch is gone: Python goes on as without us
        return found(name, path, cls._others)  # type: ignore[arg-type]

    @classmethod
    def _others(cls, name: str, path: object) -> object:
        others: list[object] = list(sys.meta_path)
        for finder in others:
            if finder is not cls and hasattr(finder, "find_spec"):
                spec: object = finder.find_spec(name, path, None)
                if spec is not None:
                    return spec
        return None


if not any(getattr(finder, "__module__", "") == __name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
    if "google.cloud.logging_v2.client" in sys.modules:
        from runwatch.compat.cloud_logging.finding import look

        look()
