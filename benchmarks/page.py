"""How quick the page is, in a real Chromium in front of a real head.

    python benchmarks/page_store.py DIRECTORY        # 10,000 runs, 22 minutes, once
    python benchmarks/page.py DIRECTORY
    python benchmarks/page.py --quick                # a smaller store, built for it

Small: the store of the page's own tests.  Large: the run `big`, a million steps with 50 metrics on
1,024 GPUs for 24 hours.  Drawn: all of the timeline's lanes have their numbers and their colours.
Each load begins with an empty browser cache.  Frames are counted while every one of them gets a
turn of the wheel.  No peer does this by itself, so there is none beside it.  Exit code 1: a bar
is missed.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil
from report import NO_BAR, Table, at_least, at_most, machine

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import page_store  # noqa: E402

from runwatch.address import Listening  # noqa: E402
from runwatch.head.http.pages import BUILT, VIEWERS  # noqa: E402
from tests.e2e import page_world  # noqa: E402
from tests.e2e.browsing import head, log_in  # noqa: E402
from tests.integration.chromium import Chromium, Page  # noqa: E402

QUICK: Final = page_store.Size(runs=500, steps=20_000, nodes=16, seconds=3600)
LOADS: Final = 5
MOVED_SECONDS: Final = 4
LARGEST_BUNDLE_KB: Final = 300

# Told by the page itself, in milliseconds since it was asked for: the moment before the frame in
# which each canvas was found to be more than empty.
WATCH: Final = """
(() => {
  const coloured = (canvas) => {
    if (!canvas || canvas.width < 100) return false;
    const found = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const pixels = new Uint32Array(found.data.buffer);
    return pixels.some((pixel) => pixel !== pixels[0]);
  };
  const lane = (name) => document.querySelector(`[data-lane="${name}"] .plot canvas`);
  const lanes = () => coloured(lane("steps")) && coloured(lane("heat")) &&
    [...document.querySelectorAll('[data-lane^="band:"] .plot canvas')].some(coloured);
  const account = () => document.querySelector(".account li") && coloured(lane("goodput"));
  const listed = () => document.querySelectorAll("tbody tr:not([aria-hidden]) .name a").length > 1;
  const look = () => {
    const now = performance.now(), isRun = location.hash.includes("/run/");
    if (document.body && (isRun ? lanes() : listed())) window.lanesMs ??= now;
    if (window.lanesMs && (!isRun || account())) window.readyMs = now;
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();
"""

MOVE: Final = """
new Promise((done) => {
  const plot = document.querySelector('[data-lane="goodput"] .plot');
  const box = plot.getBoundingClientRect(), began = performance.now(), frames = [];
  const turn = TURN;
  const frame = (now) => {
    frames.push(now);
    if (now - began > SECONDS * 1000) return done(frames);
    const asked = { bubbles: true, cancelable: true, clientY: box.top + box.height / 2,
                    clientX: box.left + box.width * 0.6, ...turn(frames.length) };
    plot.dispatchEvent(new WheelEvent("wheel", asked));
    plot.dispatchEvent(new PointerEvent("pointermove", asked));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""
TURNS: Final = {
    "zoom": "(at) => ({ ctrlKey: true, deltaY: at % 120 < 60 ? -12 : 12 })",
    "pan": "(at) => ({ shiftKey: true, deltaY: at % 120 < 60 ? 24 : -24 })",
}


@dataclass(frozen=True, slots=True)
class Load:
    """Seconds since the address was asked for."""

    lanes: float
    """Until all was drawn that needs no account of the run's time."""
    all: float


@dataclass(frozen=True, slots=True)
class Moved:
    frames_a_second: float
    slow_ms: float
    """95 of 100 frames came sooner after the one before."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path, nargs="?", help="what page_store.py built")
    parser.add_argument("--quick", action="store_true", help="build a smaller one instead")
    asked = parser.parse_args()
    if asked.store is None and not asked.quick:
        parser.error("name the directory of a store of page_store.py, or say --quick")
    print(machine(), end="\n\n", flush=True)
    table = Table("The page in Chromium", ["what", "measured", "bar", "met"])
    measure_bundle(table)
    with tempfile.TemporaryDirectory() as folder:
        measure_small(table, Path(folder, "small"))
        measure_large(table, large_store(Path(folder, "large"), asked.store))
    print(table.text(), end="\n\n", flush=True)
    return int(any(row[3].startswith("short") for row in table.rows))


def large_store(into: Path, given: Path | None) -> Path:
    """A copy, since only one process may have a store open, and a head writes to it."""
    into.mkdir()
    if given is None:
        page_store.build(into, QUICK)
    else:
        source = str(given / "store")
        subprocess.run(["cp", "-r", "--reflink=auto", source, str(into)], check=True)
    return into


def measure_bundle(table: Table) -> None:
    files = [path for path in BUILT.rglob("*") if path.is_file()]
    ours = [path for path in files if not str(path.relative_to(BUILT)).startswith(VIEWERS)]
    packed = sum(len(gzip.compress(path.read_bytes(), 6)) for path in ours) / 1e3
    bar = at_most(packed, LARGEST_BUNDLE_KB, "kB", 3)
    table.rows.append(["all its files, gzip, without viewers", f"{packed:.0f} kB", *bar])


def measure_small(table: Table, root: Path) -> None:
    root.mkdir()
    page_world.build(root, time.time_ns())
    with looking(root) as (at, page):
        first, *later = [load(page, at, f"run/{page_world.RUN}") for _ in range(LOADS + 1)]
    what = "small: a run's page drawn"
    add_loads(table, what, later, 1.0)
    add_start(table, what, first, 1.0)


def measure_large(table: Table, root: Path) -> None:
    with looking(root) as (at, page):
        listed = [load(page, at, "") for _ in range(LOADS)]
        first, *later = [load(page, at, "run/big") for _ in range(LOADS + 1)]
        moved = {name: move(page, turn) for name, turn in TURNS.items()}
        resident, heap = memory(page)
    with looking(root) as (at, page):  # the head was stopped, and starts again
        again = load(page, at, "run/big")
    measured = f"{statistics.median(one.all for one in listed):.2f} s"
    table.rows.append(["large: list of all runs drawn", measured, *NO_BAR])
    what = "large: timeline drawn"
    add_loads(table, what, later, 2.0)
    add_start(table, what, again, 2.0)
    never = f"{what}, of a store that no head has had yet: goodput too"
    table.rows.append([never, f"{first.all:.2f} s", *NO_BAR])
    for name, found in moved.items():
        bar = at_least(found.frames_a_second, 30, "frames/s")
        rate = f"{found.frames_a_second:.1f} frames/s"
        table.rows.append([f"large: {name}", rate, *bar])
        table.rows.append([f"large: {name}, 95th percentile", f"{found.slow_ms:.0f} ms", *NO_BAR])
    bar = at_most(resident, 300, "MB", 3)
    table.rows.append(["large: memory of the page's process", f"{resident:.0f} MB", *bar])
    table.rows.append(["large: of that JavaScript's heap", f"{heap:.0f} MB", *NO_BAR])


def add_loads(table: Table, what: str, took: list[Load], bar: float) -> None:
    seconds = [one.all for one in took]
    middle = statistics.median(seconds)
    table.rows.append([what, f"{middle:.2f} s", *at_most(middle, bar, "s")])
    table.rows.append([f"{what}, slowest of {len(took)}", f"{max(seconds):.2f} s", *NO_BAR])


def add_start(table: Table, what: str, took: Load, bar: float) -> None:
    for rest, seconds in (("all but goodput", took.lanes), ("goodput too", took.all)):
        title = f"{what}, head just started: {rest}"
        table.rows.append([title, f"{seconds:.2f} s", *at_most(seconds, bar, "s")])


# ── in the browser ─────────────────────────────────────────────────────────────────────────────


@contextmanager
def looking(root: Path) -> Iterator[tuple[Listening, Page]]:
    with head(root) as at, Chromium() as browser, browser.open("about:blank") as page:
        size = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.ask("Emulation.setDeviceMetricsOverride", **size)
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        log_in(browser, at.http)
        yield at, page


def load(page: Page, at: Listening, place: str) -> Load:
    page.ask("Page.navigate", url="about:blank")
    page.until("location.href === 'about:blank'")
    page.ask("Network.clearBrowserCache")
    page.ask("Page.navigate", url=f"{at.http}/#/{place}")
    lanes, all = page.until("window.readyMs && [window.lanesMs, window.readyMs]", 120)
    return Load(lanes / 1e3, all / 1e3)


def move(page: Page, turn: str) -> Moved:
    script = MOVE.replace("TURN", turn).replace("SECONDS", str(MOVED_SECONDS))
    frames: list[float] = page.evaluate(script)
    apart = [b - a for a, b in zip(frames, frames[1:], strict=False)]
    rate = len(apart) / (frames[-1] - frames[0]) * 1e3
    return Moved(rate, statistics.quantiles(apart, n=20)[-1])


def memory(page: Page) -> tuple[float, float]:
    """Of the process that draws the page, and of its scripts, in megabytes."""
    page.ask("HeapProfiler.collectGarbage")
    page.ask("Performance.enable")
    numbers: Any = page.ask("Performance.getMetrics")["metrics"]
    heap = next(one["value"] for one in numbers if one["name"] == "JSHeapUsedSize")
    mine = psutil.Process().children(recursive=True)
    drawing = [one for one in mine if "--type=renderer" in one.cmdline()]
    return max(one.memory_info().rss for one in drawing) / 1e6, heap / 1e6


if __name__ == "__main__":
    sys.exit(main())
