"""What a calculator keeps between questions, as `ml_goodput_measurement.goodput_cache` has it.

It is in memory: `cache_dir` and `gcs_path` are taken, and nothing is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from runwatch.compat.goodput import goodput_utils
from runwatch.compat.goodput.fields import _JOB_END_TIME, _JOB_START_TIME, _STEP_START_TIME
from runwatch.compat.goodput.goodput_utils import (
    GoodputInfo,
    StepInfo,
    get_timestamp_from_log_entry,
    is_seconds,
)

__all__ = ["GoodputCache", "GoodputInfo", "StepInfo", "goodput_utils"]

Entry = Mapping[str, Any]


class GoodputCache:
    """The first generation makes one without arguments."""

    def __init__(
        self,
        job_name: str = "",
        cache_dir: str = "/tmp",
        gcs_path: str | None = None,
        *,
        entries: Callable[[], Iterable[Entry]] | None = None,
        step_info: Callable[[], StepInfo | None] | None = None,
    ) -> None:
        """`entries` and `step_info` give what `update_…` did not put here."""
        self.job_name = job_name
        self.cache_dir = cache_dir
        self.gcs_path = gcs_path
        self._entries: list[Entry] = []
        self._more_entries = entries
        self._make_step_info = step_info
        self._goodput_info: GoodputInfo | None = None
        self._step_info: StepInfo | None = None
        self._last_entry_info: Any = None

    # ── entries ───────────────────────────────────────────────────────────────────────────────

    def update_cached_entries(self, entries: Iterable[Entry], last_entry_info: Any = None) -> None:
        self._entries.extend(entries)
        if last_entry_info is not None:
            self._last_entry_info = last_entry_info

    def get_cached_entries(self) -> list[Entry]:
        more = () if self._more_entries is None else self._more_entries()
        return [*more, *self._entries]

    def get_step_entries(self) -> list[Entry]:
        return [entry for entry in self.get_cached_entries() if _STEP_START_TIME in entry]

    def is_cache_empty(self) -> bool:
        return not self._entries and not any(True for _ in (self._more_entries or tuple)())

    def clear_cache(self) -> None:
        """Forget what was put here."""
        self._entries.clear()
        self._goodput_info = self._step_info = self._last_entry_info = None

    def get_job_start_time(self) -> datetime | None:
        """Of the job's first start."""
        return next(self._stated(_JOB_START_TIME), None)

    def get_job_end_time(self) -> datetime | None:
        """Of the end that was recorded last."""
        return next(iter([*self._stated(_JOB_END_TIME)][-1:]), None)

    def _stated(self, field: str) -> Iterator[datetime]:
        for entry in self.get_cached_entries():
            if is_seconds(seconds := entry.get(field)):
                yield datetime.fromtimestamp(seconds, UTC)

    # ── how far the log was read ──────────────────────────────────────────────────────────────

    def update_last_entry_info(self, last_entry_info: Any) -> None:
        self._last_entry_info = last_entry_info

    def get_last_entry_info(self) -> Any:
        return self._last_entry_info

    def get_last_entry_timestamp(self) -> datetime | None:
        """Of the last entry, as the first generation asks for it."""
        entries = self.get_cached_entries()
        return get_timestamp_from_log_entry(entries[-1]) if entries else None

    def update_last_entry_timestamp(self) -> None:
        """Nothing to do: it is read from the entries."""

    def update_job_start_time(self) -> None:
        """Nothing to do: it is read from the entries."""

    def update_job_end_time(self) -> None:
        """Nothing to do: it is read from the entries."""

    # ── figures ───────────────────────────────────────────────────────────────────────────────

    def update_goodput_info(self, goodput_info: GoodputInfo) -> None:
        self._goodput_info = goodput_info

    def get_goodput_info(self) -> GoodputInfo | None:
        """The figures of the last question about the whole job; None before the first."""
        return self._goodput_info

    def update_step_info(self, step_info: StepInfo | None) -> None:
        self._step_info = step_info

    def get_step_info(self) -> StepInfo | None:
        if self._step_info is None and self._make_step_info is not None:
            self._step_info = self._make_step_info()
        return self._step_info

    def sync_to_gcs(self) -> None:
        """Nothing to do: there is no file to copy."""
