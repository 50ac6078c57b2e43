"""How long it takes to find a text in a long log, and how much memory.

    python benchmarks/searching.py                1,000,000 lines
    python benchmarks/searching.py --quick        100,000 lines

The log of eight ranks lies in the hot tables or in closed files, a line in each record or a
thousand.  Each search is asked of a process of its own that has just opened the store, with none of
its files in the cache: all pages from the newest line back, as the page asks, or from the oldest
on, as `runwatch logs --grep` does.  One line has the rare text.  The common one is in all of them,
and only its first 20 pages are asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from command import run_one
from first_answer import resident_mb
from page_store import SECOND, Journal
from report import NO_BAR, Outcome, Table, at_most
from tools import Tool
from trial import Options, TrialFailed, answer, ask, directory

from runwatch.cli.asgi import Exchange
from runwatch.head.main import LocalHead
from runwatch.record import Event, RunId, RunScope
from runwatch.record.console import Console
from runwatch.store.duck.engine import DuckStore

OURS: Final = Tool(
    "Runwatch", "runwatch", lambda place, home: {}, "", "", "", lambda a, b: [], is_ours=True
)
RANKS: Final = 8
PAGE: Final = 2_000
BAR_SECONDS: Final = 2.0
COMMON_PAGES: Final = 20
STORES: Final = (("hot tables", 1), ("closed files", 1), ("closed files", 1_000))
"""Where the log lies, and how many lines a record has."""
SEARCHES: Final = (
    ("rare", "needle", "before"),
    ("rare", "needle", "after"),
    ("rare, with a capital", "Needle", "before"),
    ("in no line, Cyrillic", "ошибка", "before"),
    ("common, 20 pages", "loss", "before"),
    ("common, 20 pages", "loss", "after"),
)


def build(root: Path, lines: int, per_record: int, *, closed: bool) -> None:
    luck, store = random.Random(1), DuckStore.open(root / "store")
    start_ns = time.time_ns() - lines * SECOND // 1000
    journals = [
        Journal(f"rank-{rank}", f"node{rank}", RunScope(1, RunId("long"), "long", rank), start_ns)
        for rank in range(RANKS)
    ]
    try:
        said = 0
        while said < lines:
            for journal in journals:
                events = []
                for _ in range(max(lines // 100 // per_record // RANKS, 1)):
                    texts = tuple(line(said + n, lines, luck) for n in range(per_record))
                    body = Console("out", texts, tuple(range(per_record))).body()
                    events.append(
                        Event(start_ns + said * SECOND // 1000, Console.KIND, body, scope=1)
                    )
                    said += per_record
                store.write([journal.closed(journal.batch(events=events))])
        if closed:
            store.compact(force=True)
    finally:
        store.close()


def line(number: int, lines: int, luck: random.Random) -> str:
    text = f"step {number} loss {luck.random():.4f} lr 3.0e-4 tokens/s {luck.randrange(10**6)}"
    return text + " Needle in the hay" * (number == lines // 8)


def work(request: dict[str, Any]) -> None:
    root = Path(request["root"])
    forget(root)
    head, loop = LocalHead(root), asyncio.new_event_loop()
    began, cpu = time.perf_counter(), time.process_time()
    pages = entries = 0
    asked = {"limit": PAGE, "grep": request["text"]}
    way, cursor = request["way"], "0.0" if request["way"] == "after" else None
    try:
        while pages < request["pages"]:
            query = urlencode(asked | ({way: cursor} if cursor else {}))
            reply = Exchange(head.app, loop, f"/api/v1/runs/long/logs?{query}")
            page = json.loads(b"".join(reply.body()))
            if reply.status != 200:
                raise TrialFailed(str(page))
            pages, entries = pages + 1, entries + len(page["entries"])
            further = page["newer" if way == "after" else "older"]
            if further in (None, cursor):
                break
            cursor = further
        numbers = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time() - cpu,
            "megabytes": resident_mb("VmHWM"),
            "pages": pages,
            "entries": entries,
        }
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        head.close()
    answer(request["directory"], numbers)


def forget(root: Path) -> None:
    """Take the files out of the system's cache."""
    for path in (path for path in root.rglob("*") if path.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def measure(options: Options) -> Outcome:
    lines = 100_000 if options.quick else 1_000_000
    table = Table(
        f"A text in {lines:,} lines",
        ["lies in", "lines a record", "text", "asked", "pages", "s", "CPU s", "peak MB", "bar", ""],
    )
    numbers: list[dict[str, Any]] = []
    for lie_in, per_record in STORES:
        with directory() as root:
            build(root, lines, per_record, closed=lie_in == "closed files")
            for what, text, way in SEARCHES:
                common = text == "loss"
                pages = COMMON_PAGES if common else 10**6
                request = {"root": str(root), "text": text, "way": way, "pages": pages}
                found = ask("searching.py", OURS, request)
                if not common and found["entries"] != int("eedle" in text):
                    raise TrialFailed(f"{text!r} was found {found['entries']} times")
                numbers.append({"lies_in": lie_in, "per_record": per_record, **request, **found})
                seconds = found["seconds"]
                cells = [
                    f"{seconds:.2f}",
                    f"{found['cpu_seconds']:.2f}",
                    f"{found['megabytes']:.0f}",
                ]
                bar = NO_BAR if common else at_most(seconds, BAR_SECONDS, "s")
                place = [lie_in, f"{per_record:,}", what, f"`{way}`", str(found["pages"])]
                table.rows.append([*place, *cells, *bar])
    return Outcome([table], {"searches": numbers})


if __name__ == "__main__":
    run_one(argparse.ArgumentParser(description=__doc__), work, measure)
