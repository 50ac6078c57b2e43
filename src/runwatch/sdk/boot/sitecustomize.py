"""Python loads this at the start of every process that `runwatch exec` has started.

It is first on the path, in front of a `sitecustomize` that is there without us: that one is loaded
in its place.  Then the hooks are set (`sdk/auto.py`), if this Python can load Runwatch.  A program
may run on a Python that is older than ours: no syntax here but what every Python 3 reads.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


class _Finder:
    """Finds Runwatch where the program's Python does not have it; last on the list of finders."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name != "runwatch":
            return None
        from importlib.util import spec_from_file_location

        start = os.path.join(_PACKAGE, "__init__.py")
        return spec_from_file_location(name, start, submodule_search_locations=[_PACKAGE])


def _without_us() -> None:
    """Leave the path as the program knows it, and load the module whose name we have."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    ours = sys.modules.pop("sitecustomize")
    try:
        __import__("sitecustomize")  # what it raises is printed, as without us
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


def _with_us() -> None:
    if sys.version_info < (3, 11):
        sys.path[:] = [path for path in sys.path if not _has_dropins(path)]
        return
    sys.meta_path.append(_Finder)  # type: ignore[arg-type]
    try:
        from runwatch.sdk.launched import take_pipes

        take_pipes()
        _start_dropin()
        if os.environ.get("RUNWATCH_AUTO") == "1":
            from runwatch.sdk import auto

            auto.begin()
    except (ImportError, OSError, ValueError, AttributeError):
        pass  # another version of Runwatch, or no wrapper any more: the program runs without us


def _start_dropin() -> None:
    """As the drop-in's own file of start-up commands does, where it is installed."""
    try:  # noqa: SIM105  (this file loads little)
        __import__("runwatch_dropin_start")
    except ImportError:
        pass


def _has_dropins(path: str) -> bool:
    """They need what this Python cannot load: the program's own packages serve it."""
    return os.path.exists(os.path.join(path, "_runwatch_dropin.py"))


try:
    _without_us()
finally:
    _with_us()
