"""What people log that is no number: kept small as a line of text, or only counted.

The names and first arguments are wandb's.  Nothing here raises, copies a file, or reads from a
device: pictures and sounds are described by their size and caption.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import Any, Final

from runwatch.sdk.guard import attempt, guarded, tally, text_of

MAX_KEPT: Final = 1_000
"""So many of these are described in one process; more are only counted."""
MAX_ROWS: Final = 20
MAX_COLUMNS: Final = 50
MAX_BINS: Final = 64
MAX_NUMBERS: Final = 10_000

Json = dict[str, Any]


class Media:
    """Anything but a number.  `told` is what is recorded of it: small, and fit for JSON."""

    def __init__(self, data: Any = None, *args: Any, caption: Any = None, **options: Any) -> None:
        self.caption = None if caption is None else text_of(caption)[:200]
        self._size = attempt("look at a picture", "", lambda: _size(data))

    def told(self) -> Json:
        told = {"type": type(self).__name__, "size": self._size, "caption": self.caption}
        return {name: value for name, value in told.items() if value}


class Image(Media):
    pass


class Video(Media):
    pass


class Audio(Media):
    pass


class Html(Media):
    pass


class Object3D(Media):
    pass


class Molecule(Media):
    pass


class Plotly(Media):
    pass


class Graph(Media):
    pass


class Plot(Media):
    """What the functions of `plot` return."""


class Classes(Media):
    pass


class Histogram(Media):
    """Counts in bins, from numbers in host memory or from `np_histogram=(counts, edges)`."""

    def __init__(
        self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64, **options: Any
    ) -> None:
        super().__init__()
        self.histogram: list[float] = []
        self.bins: list[float] = []
        self._fill(sequence, np_histogram, num_bins)

    @guarded("make a histogram")
    def _fill(self, sequence: Any, np_histogram: Any, num_bins: int) -> None:
        if np_histogram is not None:
            counts, edges = np_histogram
            self.histogram, self.bins = [float(n) for n in counts], [float(n) for n in edges]
        elif on_device(sequence):
            tally.count(
                "histogram of a device's values",
                "a histogram of values on a device is not made: the step would wait for them",
            )
        else:
            self.histogram, self.bins = _binned(sequence, max(1, min(int(num_bins), MAX_BINS)))

    def told(self) -> Json:
        return {
            "type": "Histogram",
            "counts": self.histogram[:512],
            "bins": [float(f"{edge:.6g}") for edge in self.bins[:513]],
        }


class Table(Media):
    """Its columns and the first rows are recorded, and how many rows there are."""

    def __init__(
        self,
        columns: Sequence[Any] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.columns: list[Any] = list(columns) if columns is not None else []
        self.data: list[list[Any]] = []
        self._fill(dataframe, data if data is not None else rows)

    @guarded("fill a table")
    def _fill(self, frame: Any, rows: Any) -> None:
        if frame is None and hasattr(rows, "columns") and hasattr(rows, "itertuples"):
            frame = rows
        if frame is not None:
            self.columns = list(frame.columns)
            rows = frame.itertuples(index=False)
        for row in () if rows is None else rows:
            self.data.append(list(row))

    @guarded("add a row to a table")
    def add_data(self, *row: Any) -> None:
        self.data.append(list(row))

    def add_row(self, *row: Any) -> None:
        self.add_data(*row)

    @guarded("add a column to a table")
    def add_column(self, name: Any, data: Any, optional: bool = False) -> None:
        values = list(data)
        self.columns.append(name)
        self.data = self.data or [[] for _ in values]
        for row, value in zip(self.data, values, strict=False):
            row.append(value)

    def get_column(self, name: Any, convert_to: Any = None) -> list[Any]:
        place = self.columns.index(name)
        return [row[place] for row in self.data]

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        return iter(enumerate(self.data))

    def told(self) -> Json:
        rows = [[cell(value) for value in row[:MAX_COLUMNS]] for row in self.data[:MAX_ROWS]]
        columns = [text_of(name)[:200] for name in self.columns[:MAX_COLUMNS]]
        return {"type": "Table", "columns": columns, "rows": len(self.data), "first_rows": rows}


class Artifact:
    """Its name, type and the names of its files are recorded; no file is copied."""

    def __init__(
        self,
        name: str,
        type: str = "",
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.name, self.type, self.description = name, type, description
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.aliases: list[str] = []
        self._files: list[str] = []

    def add_file(self, local_path: Any, name: str | None = None, **options: Any) -> None:
        self._files.append(text_of(name or local_path)[:500])

    def add_dir(self, local_path: Any, name: str | None = None, **options: Any) -> None:
        self.add_file(local_path, name)

    def add_reference(self, uri: Any, name: str | None = None, **options: Any) -> None:
        self.add_file(uri, name)

    def add(self, obj: Any, name: str, **options: Any) -> Any:
        self.add_file(name)
        return obj

    @contextmanager
    def new_file(self, name: str, mode: str = "w", **options: Any) -> Iterator[StringIO]:
        self.add_file(name)
        yield StringIO()

    def wait(self, timeout: float | None = None) -> Artifact:
        return self

    def save(self, *args: Any, **options: Any) -> None:
        pass

    def told(self) -> Json:
        return {
            "type": "Artifact",
            "name": text_of(self.name)[:200],
            "kind": text_of(self.type)[:200],
            "files": self._files[:MAX_ROWS],
            "file_count": len(self._files),
        }


class _Plots:
    """`plot.confusion_matrix(…)` and the like: taken, and only counted."""

    def __getattr__(self, name: str) -> type[Plot]:
        if name.startswith("_"):
            raise AttributeError(name)
        return Plot


plot: Final = _Plots()
_kept = 0


def told(value: Media | Artifact) -> Json | None:
    """What to record of it; None, counted, when enough of these were recorded."""
    global _kept
    kind = type(value).__name__
    if not isinstance(value, Histogram | Table | Artifact):
        tally.count(
            f"wandb {kind}",
            f"runwatch keeps no {kind}: its size and caption are recorded, not its content",
        )
    if _kept >= MAX_KEPT:
        tally.count("wandb media", f"more than {MAX_KEPT} values that are no numbers: counted only")
        return None
    _kept += 1
    return attempt(f"describe a {kind}", None, value.told)


def cell(value: Any) -> Any:
    """One cell of a table."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Media | Artifact):
        return type(value).__name__
    if on_device(value):
        return f"<{type(value).__name__}>"
    return text_of(value)[:200]


def on_device(value: Any) -> bool:
    """Whether reading it would wait for a device."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    tensor, array = getattr(torch, "Tensor", None), getattr(jax, "Array", None)
    if tensor is not None and isinstance(value, tensor):
        return bool(value.device.type != "cpu")
    return array is not None and isinstance(value, array) and not value.is_ready()


def _size(data: Any) -> str:
    """28x28x3, or the name of the file."""
    if isinstance(data, str):
        return data[:200]
    shape = getattr(data, "shape", None) or getattr(data, "size", None)
    return "x".join(str(n) for n in shape) if isinstance(shape, tuple | list) else ""


def _binned(sequence: Any, count: int) -> tuple[list[float], list[float]]:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return _binned_slowly([float(n) for n in sequence[:MAX_NUMBERS]], count)
    numbers = numpy.asarray(sequence.detach() if hasattr(sequence, "detach") else sequence).ravel()
    numbers = numbers[numpy.isfinite(numbers)]
    if not numbers.size:
        return [], []
    counts, edges = numpy.histogram(numbers, bins=count)
    return counts.astype(float).tolist(), edges.tolist()


def _binned_slowly(numbers: Sequence[float], count: int) -> tuple[list[float], list[float]]:
    """For programs without NumPy, which have few numbers."""
    numbers = [n for n in numbers if math.isfinite(n)]
    if not numbers:
        return [], []
    low, high = min(numbers), max(numbers)
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / count
    counts = [0.0] * count
    for number in numbers:
        counts[min(int((number - low) / width), count - 1)] += 1
    return counts, [low + width * i for i in range(count)] + [high]
