"""Columns of numbers to columns of text, whole columns at once: a call per cell would be slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from runwatch.exports.rows import ExportBatch, Head

_DAY_NS: Final = 86_400 * 10**9
_DATE: Final = 10
_REST: Final = "T00:00:00.000000000Z"
_encode: Final = msgspec.json.Encoder().encode


def lines(
    batch: ExportBatch,
    heads: Iterable[str],
    steps: Sequence[str],
    values: Sequence[str],
    tails: Sequence[str],
    *,
    around_time: tuple[str, str],
) -> str:
    """Rows as text: the columns before the step, then step, time and value, then the tail."""
    cells = [""] * (5 * len(batch))
    cells[0::5] = heads
    cells[1::5] = steps
    cells[2::5] = times(np.asarray(batch.time_ns, np.int64), *around_time)
    cells[3::5] = values
    cells[4::5] = tails
    return "".join(cells)


def heads(batch: ExportBatch, text: Callable[[Head], str]) -> list[str]:
    """Each row's columns before the step; rows that share them share one text."""
    texts: list[str] = []
    for head, count in batch.stretches():
        texts += [text(head)] * count
    return texts


def tails(batch: ExportBatch, text: Callable[[int], str]) -> list[str]:
    """Each row's columns after the value, and its end."""
    texts = {rank: text(rank) for rank in set(batch.process)}
    if len(texts) == 1:  # most batches are of one series
        return list(texts.values()) * len(batch)
    return [texts[rank] for rank in batch.process]


def integers(column: Sequence[int | None], *, absent: str) -> list[str]:
    return _encode(list(column)).decode()[1:-1].replace("null", absent).split(",")


def numbers(column: Sequence[float], *, exponents: bool, quote: str = "") -> list[str]:
    """As JSON writes numbers, or with `exponents` as `repr` does; NaN and ±Infinity as words."""
    values = np.asarray(column, np.float64)
    texts = _encode(values.tolist()).decode()[1:-1].split(",")
    odd = ~np.isfinite(values)
    if exponents:  # the two differ only in numbers with an exponent
        size = np.abs(values)
        odd = ~((size >= 1e-4) & (size < 1e16) | (size == 0))
    for index in np.flatnonzero(odd).tolist():
        value = float(values[index])
        texts[index] = repr(value) if math.isfinite(value) else f"{quote}{spelled(value)}{quote}"
    return texts


def spelled(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def times(time_ns: npt.NDArray[np.int64], before: str, after: str) -> list[str]:
    """Each time as `views.times.rfc3339` writes it, between `before` and `after`."""
    day, rest = np.divmod(time_ns, _DAY_NS)
    days, which = np.unique(day, return_inverse=True)
    dates = np.datetime_as_string(days.astype("datetime64[D]")).astype(f"U{_DATE}")
    row = _characters(np.array([before + "0" * _DATE + _REST + after]))
    table = np.repeat(row, len(time_ns), axis=0)
    at = len(before)
    table[:, at : at + _DATE] = _characters(dates)[which]
    at += _DATE + 1
    second, nanosecond = np.divmod(rest, 10**9)
    for part in (second // 3600, second // 60 % 60, second % 60):
        table[:, at : at + 2] = _DIGITS[part, 1:]
        at += 3
    for part in (nanosecond // 10**6, nanosecond // 1000 % 1000, nanosecond % 1000):
        table[:, at : at + 3] = _DIGITS[part]
        at += 3
    texts: list[str] = table.view(f"U{table.shape[1]}").ravel().tolist()
    return texts


def _characters(texts: npt.NDArray[np.str_]) -> npt.NDArray[np.uint32]:
    """One row per text, one column per character; all texts have one length."""
    return np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), -1)


_DIGITS: Final = _characters(np.array([f"{number:03d}" for number in range(1000)]))
