"""The command."""

from runwatch.compat.xprofiler.command import main, parser

__all__ = ["main", "parser"]
