"""Make docs/images/page/*.png: every page over the tests' small cluster, in light, dark and narrow.

python scripts/page_pictures.py            all of them
python scripts/page_pictures.py stacks     those of one page
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.e2e.browsing import Visitor, head, log_in  # noqa: E402
from tests.e2e.page_world import AHEAD, RUN, build  # noqa: E402
from tests.integration.chromium import Chromium  # noqa: E402

IMAGES = ROOT / "docs" / "images" / "page"
LARGE, LARGEST = 100_000, 150_000
SETTLE_SECONDS = 0.7  # charts are drawn in the frame after their numbers came
LOOKS = {"light": ("light", 1280), "dark": ("dark", 1280), "narrow": ("light", 390)}
HEIGHTS = {1280: 900, 390: 844}
COLOURS = 256


@dataclass(frozen=True, slots=True)
class Shown:
    place: str
    ready: str
    """An expression that is true when it has drawn."""
    tallest: int = 2400
    """Pages without end are cut here."""


def says(text: str) -> str:
    return f"document.body?.innerText.includes({text!r})"


def wide(selector: str) -> str:
    return f"document.querySelector({selector!r})?.width > 100"


def charts(count: int) -> str:
    return f"document.querySelectorAll('.u-over').length >= {count}"


PAGES = {
    "runs": Shown("", "document.querySelectorAll('tbody .goodput [role=img]').length === 3"),
    "rollup": Shown("?sum=group", "document.querySelectorAll('td [role=img]').length === 6"),
    "compare": Shown(f"compare?runs={RUN},run-bert", charts(1)),
    "timeline": Shown(
        f"run/{RUN}", f"{wide('[data-lane=heat] canvas')} && {says('restored checkpoint')}"
    ),
    "goodput": Shown(f"run/{RUN}/goodput", says("productive steps")),
    "metrics": Shown(f"run/{RUN}/metrics", charts(2), tallest=1000),
    "devices": Shown(f"run/{RUN}/devices", f"{says('XID 31')} && {says('thermal limit')}"),
    "stacks": Shown(f"run/{RUN}/stacks?incident=i1", says("rank 5 is in no collective")),
    "profiles": Shown(f"run/{RUN}/profiles?session=warm-up", says("aten::addmm")),
    "processes": Shown(f"run/{RUN}/processes", says("16 of 16 processes")),
    "config": Shown(f"run/{RUN}/config?with=run-bert", says("differences among")),
    "cluster": Shown("cluster", "document.querySelectorAll('.cell').length === 12"),
    "login": Shown("", "document.querySelector('input[type=password]') !== null"),
}  # fmt: skip


def main() -> None:
    wanted = sys.argv[1:] or list(PAGES)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Chromium() as browser:
        build(Path(folder), time.time_ns() + AHEAD)
        with head(Path(folder)) as at:
            log_in(browser, at.http)
            for name in wanted:
                if name != "login":
                    take(browser, at.http, name)
        if "login" in wanted:
            with head(Path(folder), "--token", "of-the-pictures") as at:
                take(browser, at.http, "login")
    pictures = sorted(IMAGES.glob("*.png"))
    total = sum(picture.stat().st_size for picture in pictures)
    print(f"{len(pictures)} pictures in {IMAGES.relative_to(ROOT)}, {total / 1e6:.1f} MB")


def take(browser: Chromium, address: str, name: str) -> None:
    shown = PAGES[name]
    with browser.open("about:blank") as page:
        looking = Visitor(page, address)
        page.ask("Emulation.setTimezoneOverride", timezoneId="UTC")
        for look, (theme, width) in LOOKS.items():
            looking.size(width, HEIGHTS[width])
            page.ask("Page.navigate", url="about:blank")
            prefer(looking, theme)
            looking.go(shown.place)
            settle(looking, shown)
            tallest = shown.tallest * (2 if width < 700 else 1)
            save(looking, shown, width, tallest, IMAGES / f"{name}-{look}.png")


def settle(looking: Visitor, shown: Shown) -> None:
    """All has been asked for, has come, and is drawn."""
    looking.see(shown.ready)
    looking.place("body")  # brings it into view
    looking.page.evaluate("scrollTo(0, 0)")
    time.sleep(SETTLE_SECONDS)


def prefer(looking: Visitor, theme: str) -> None:
    """What the system prefers, before there is a page that could tell: the login has no button."""
    feature = {"name": "prefers-color-scheme", "value": theme}
    looking.page.ask("Emulation.setEmulatedMedia", features=[feature])


def save(looking: Visitor, shown: Shown, width: int, tallest: int, path: Path) -> None:
    bottoms = (
        "[...document.querySelectorAll('main > *')].map(e => e.getBoundingClientRect().bottom)"
    )
    needed = looking.page.evaluate(f"Math.max(440, ...{bottoms}) + 20")
    looking.size(width, min(tallest, int(needed)))
    settle(looking, shown)
    looking.page.picture(path)
    shrink(path)
    size = path.stat().st_size
    if size > LARGEST:
        print(f"{path.name} has {size / 1e3:.0f} kB, more than {LARGEST / 1e3:.0f}")


def shrink(path: Path) -> None:
    """Fewer colours where that saves much; maps of colours show it, so not everywhere."""
    if path.stat().st_size <= LARGE:
        return
    with Image.open(path) as picture:
        plain = picture.convert("RGB")
    usual = Image.Quantize.MEDIANCUT
    plain.quantize(COLOURS, usual, kmeans=2, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
