"""What truly went on in a training program, by clocks that Runwatch has no part in.

JAX hands work to its device and goes on.  A thread of ours waits for each step's result in turn, in
native code: the device was at a step from when it was handed over, or from when it was done with
the one before, until its result was there.  That is exact to a thread's waking up, needs no
profiler, and costs the program nothing.  Eager PyTorch on a CPU computes while it is called: there
the time of the calls is the device's.  What the main thread did meanwhile is written down around
the code that does it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

PRODUCTIVE, STARTUP, PREPARATION = "productive", "program_startup", "training_preparation"
BETWEEN = "unattributed"
now = time.perf_counter


class Stretch(NamedTuple):
    start: float
    end: float
    what: str


class Observed:
    """Begins where the run begins; `close` writes the truth to the file named on the command line
    (`program.py TRUTH STEPS`)."""

    def __init__(self) -> None:
        self.start = self._ready = now()
        self._end: float | None = None
        self._busy: list[Stretch] = []
        self._host: list[Stretch] = []
        self._first_step: float | None = None
        self._handed: SimpleQueue[tuple[float, Any] | None] = SimpleQueue()
        self._watcher = Thread(target=self._watch, name="observer")
        self._watcher.start()

    # ── the device ────────────────────────────────────────────────────────────────────────────

    def device(self, function: Any) -> Callable[..., Any]:
        """A jitted step whose last result is not donated to the next."""

        def call(*args: Any) -> Any:
            known = function._cache_size()
            begun = now()
            self._first_step = self._first_step or begun
            results = function(*args)
            if function._cache_size() != known:  # it was compiled first
                self._host.append(Stretch(begun, begun := now(), STARTUP))
            self._handed.put((begun, results[-1]))
            return results

        return call

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around what is computed while it is called."""
        begun = now()
        self._first_step = self._first_step or begun
        yield
        self._busy.append(Stretch(begun, now(), PRODUCTIVE))

    def _watch(self) -> None:
        while (handed := self._handed.get()) is not None:
            begun, result = handed
            result.block_until_ready()
            start, self._ready = max(begun, self._ready), now()
            self._busy.append(Stretch(start, self._ready, PRODUCTIVE))

    # ── the main thread ───────────────────────────────────────────────────────────────────────

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        begun = now()
        yield
        self._host.append(Stretch(begun, now(), what))

    def loading(self, items: Iterable[T]) -> Iterator[T]:
        """The loader: what it takes to make an item is waiting for data."""
        iterator = iter(items)
        while True:
            with self.doing("data_loading"):
                item = next(iterator, None)
            if item is None:
                return
            yield item

    def stop(self) -> None:
        """The run ends here, though the program goes on."""
        self._end = now()

    def close(self, **more: float | None) -> None:
        """Right before the run is finished; `more` goes beside the truth."""
        end = self._end or now()
        self._handed.put(None)
        self._watcher.join()
        first = self._first_step or end
        spent = partition(self.start, first, end, self._host, self._busy)
        truth = {"wall": end - self.start, "spent": spent, "steps": len(self._busy), **more}
        Path(sys.argv[1]).write_text(json.dumps(truth))


def partition(
    start: float, first: float, end: float, host: Iterable[Stretch], busy: Iterable[Stretch]
) -> dict[str, float]:
    """Every moment once: the device's, else what the main thread was at, the innermost; before the
    first step it prepares."""
    layers = [
        Stretch(start, first, PREPARATION),
        *sorted(host),  # what is inside begins later
        *busy,
    ]
    edges = sorted({start, end, *(edge for s in layers for edge in (s.start, s.end))})
    place = {edge: at for at, edge in enumerate(edges)}
    what = [BETWEEN] * len(edges)
    for layer in layers:
        for at in range(place[layer.start], place[layer.end]):
            what[at] = layer.what
    spent: dict[str, float] = {}
    for at, (a, b) in enumerate(zip(edges, edges[1:], strict=False)):
        if start <= a and b <= end:
            spent[what[at]] = spent.get(what[at], 0.0) + b - a
    return spent


def steps() -> int:
    """How many to do."""
    return int(sys.argv[2])
