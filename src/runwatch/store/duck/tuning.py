"""The settings of the embedded engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DuckSettings:
    compact_rows: int = 2_000_000
    """A generation with more points than this is compacted …"""
    compact_seconds: float = 3600
    """… and so is one that is older than this and not empty."""
    merge_parts: int = 8
    """This many parts of one level in a day are merged into one of the next."""
    merge_rows: int = 16_000_000
    """Most rows in a file that a merge writes; limits the memory that its sort needs."""
    slice_bytes: int = 128 << 20
    """Most bytes of event bodies in one file, uncompressed; limits that memory as well."""
    close_seconds: float = 3600
    """How long after its end a day gets its final merge."""
    reserve_bytes: int = 32 << 20
    """With less free space nothing more is stored; 0 waits for the engine to fail."""
    spare_bytes: int = 64 << 20
    """This much free space inside the hot database is not worth rewriting tables for."""
    page_rows: int = 4_000_000
    """Most rows that a question about points holds at a time; about 100 MB."""
    memory_limit: str = "1GB"
    checkpoint_threshold: str = "16MB"
    threads: int = 0
    """0: one per core."""
    reached: Callable[[str], None] = lambda place: None
    """Called at the points of compaction where a crash matters; for tests."""

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
