"""The command `gswarm`."""

from runwatch.compat.gswarm.swarm import main, parser

__all__ = ["main", "parser"]
