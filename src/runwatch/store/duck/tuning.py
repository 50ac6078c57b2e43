"""What can be set about the embedded engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DuckSettings:
    compact_rows: int = 2_000_000
    """A generation with more points than this is ripe."""
    compact_seconds: float = 3600
    """… or one that is older than this and not empty."""
    merge_parts: int = 8
    """So many parts of one level in a day become one of the next."""
    merge_rows: int = 16_000_000
    """Largest file a merge writes; bounds the memory its sort needs."""
    slice_bytes: int = 128 << 20
    """Of events' bodies in one file, before they are packed; bounds the memory as well."""
    close_seconds: float = 3600
    """How long after its end a day is merged for good."""
    reserve_bytes: int = 32 << 20
    """Free space below which nothing more is taken; 0 waits for the engine to fail."""
    spare_bytes: int = 64 << 20
    """Free room inside the hot database that is not worth writing the catalogue anew for."""
    page_rows: int = 4_000_000
    """Most rows a question about points holds at a time; about 100 MB."""
    memory_limit: str = "1GB"
    checkpoint_threshold: str = "16MB"
    threads: int = 0
    """0: as many as there are cores."""
    reached: Callable[[str], None] = lambda place: None
    """Called at the places of compaction where a crash matters; for tests."""

    def engine_config(self, directory: Path | None) -> dict[str, str | int]:
        config: dict[str, str | int] = {
            "threads": self.threads or os.cpu_count() or 1,
            "memory_limit": self.memory_limit,
            "checkpoint_threshold": self.checkpoint_threshold,
            "autoinstall_known_extensions": "false",
        }
        if directory is not None:
            config["temp_directory"] = str(directory / "spill")
        return config
