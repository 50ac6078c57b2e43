"""The command."""

from runwatch.compat.gswarm.command import main, parser

__all__ = ["main", "parser"]
