"""Looking at the page as people do: a real head, a real browser, a mouse and a keyboard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runwatch.head.main import Listening, read_address
from runwatch.head.pages import BUILT
from tests.integration.chromium import PROGRAM, Chromium, Page
from tests.integration.processes import end, until

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
needs_browser = pytest.mark.skipif(not PROGRAM, reason="no Chromium here")
needs_page = pytest.mark.skipif(not (BUILT / "index.html").exists(), reason="no page was built")
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Escape": 27, "Enter": 13, "Tab": 9}


@contextmanager
def head(root: Path, *options: str) -> Iterator[Listening]:
    """A head over a directory, as a process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    command = ["-m", "runwatch.cli", "head", "--dir", str(root), "--grpc-port", "0"]
    if "--http-port" not in options:
        command += ["--http-port", "0"]
    with (root / "head.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, *command, *options], env=environment, stdout=log, stderr=log
        )

    def ready() -> Listening | None:
        assert process.poll() is None, (root / "head.log").read_text()
        at = read_address(root)
        return at if at is not None and at.pid == process.pid else None

    try:
        yield until(ready, 60, "the head to start")
    finally:
        end(process, signal.SIGTERM)


class Visitor:
    """One page in a browser, looked at."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address

    # ── seeing ────────────────────────────────────────────────────────────────────────────────

    def see(self, script: str, seconds: float = 30.0) -> Any:
        """Wait until it is so."""
        return self.page.until(script, seconds)

    def there(self, selector: str) -> None:
        self.see(f"document.querySelector({json.dumps(selector)}) !== null")

    def sees(self, text: str, inside: str = "body") -> None:
        self.see(
            f"document.querySelector({json.dumps(inside)})?.innerText.includes({json.dumps(text)})"
        )

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.page.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".map(e => e.innerText.replaceAll('\\u00a0', ' '))"
        )
        return found

    def query(self) -> dict[str, str]:
        """What the address says after the #."""
        found: dict[str, str] = self.page.evaluate(
            "Object.fromEntries(new URLSearchParams(location.hash.split('?')[1] ?? ''))"
        )
        return found

    def place(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, scrolled into view."""
        box = self.see(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            if (!e) return null; e.scrollIntoView({{block: "center"}});
            const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }})()"""
        )
        return box[0], box[1], box[2], box[3]

    # ── doing ─────────────────────────────────────────────────────────────────────────────────

    def go(self, place: str = "") -> None:
        self.page.ask("Page.navigate", url=f"{self.address}/#/{place}")

    def reload(self) -> None:
        self.page.ask("Page.reload")

    def click(self, selector: str) -> None:
        left, top, width, height = self.place(selector)
        self.press(left + width / 2, top + height / 2)

    def click_text(self, text: str, tag: str = "button") -> None:
        """The element of that kind that says exactly this, or begins with it."""
        mark = f"""(() => {{ const all = [...document.querySelectorAll({json.dumps(tag)})];
            const found = all.find(e => e.innerText.trim() === {json.dumps(text)})
                ?? all.find(e => e.innerText.trim().startsWith({json.dumps(text)}));
            if (!found) return false;
            document.querySelectorAll("[data-found]").forEach(e => delete e.dataset.found);
            found.dataset.found = "1"; return true; }})()"""
        self.see(mark)
        self.click("[data-found]")

    def press(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def drag(self, selector: str, start: float, stop: float) -> None:
        """From one share of an element's width to another."""
        left, top, width, height = self.place(selector)
        y = top + height / 2
        self.mouse("mouseMoved", left + start * width, y)
        self.mouse("mousePressed", left + start * width, y)
        for part in (0.3, 0.7, 1.0):
            self.mouse("mouseMoved", left + (start + (stop - start) * part) * width, y, buttons=1)
        self.mouse("mouseReleased", left + stop * width, y)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.page.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button, **more)

    def wheel(self, selector: str, share: float, amount: float) -> None:
        """Turn the wheel with Ctrl held, at a share of the element's width."""
        left, top, width, height = self.place(selector)
        self.page.ask(
            "Input.dispatchMouseEvent",
            type="mouseWheel",
            x=left + share * width,
            y=top + height / 2,
            deltaX=0,
            deltaY=amount,
            modifiers=2,
        )

    def key(self, key: str) -> None:
        code = KEYS.get(key, ord(key[0]))
        text = {"text": key} if len(key) == 1 else {}
        same = {"key": key, "windowsVirtualKeyCode": code}
        self.page.ask("Input.dispatchKeyEvent", type="keyDown", **same, **text)
        self.page.ask("Input.dispatchKeyEvent", type="keyUp", **same)

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.page.evaluate(f"document.querySelector({json.dumps(selector)}).select?.()")
        self.page.ask("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        self.page.evaluate(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.value = {json.dumps(value)};
            e.dispatchEvent(new Event("input", {{bubbles: true}}));
            e.dispatchEvent(new Event("change", {{bubbles: true}})); }})()"""
        )

    def size(self, width: int, height: int) -> None:
        self.page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def theme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.page.ask("Emulation.setEmulatedMedia", features=[feature])

    # ── judging ───────────────────────────────────────────────────────────────────────────────

    def check_clean(self) -> None:
        """Nothing was complained of, and nobody else was asked."""
        logged = [e["entry"] for e in self.page.events("Log.entryAdded")]
        assert not [e["text"] for e in logged if e["level"] in ("error", "warning")]
        thrown = self.page.events("Runtime.exceptionThrown")
        assert not [e["exceptionDetails"] for e in thrown]
        said = self.page.events("Runtime.consoleAPICalled")
        assert not [e["args"] for e in said if e["type"] in ("error", "warning", "assert")]
        asked = [e["request"]["url"] for e in self.page.events("Network.requestWillBeSent")]
        ours = (f"{self.address}/", "data:", "blob:", "about:")
        assert asked and not [url for url in asked if not url.startswith(ours)]

    def check_accessible(self) -> None:
        """No finding of axe that is serious or worse."""
        if not AXE.exists():
            pytest.skip("axe-core is not installed: python web/build.py test")
        self.page.evaluate(AXE.read_text() + ";0")
        found = self.page.evaluate(
            """axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations
            .filter(v => v.impact === "serious" || v.impact === "critical")
            .map(v => [v.id, v.impact, v.nodes.slice(0, 5).map(n => n.html.slice(0, 160) + " " +
                (n.any[0]?.message ?? ""))]))"""
        )
        assert found == []


@contextmanager
def visitor(browser: Chromium, address: str, place: str = "") -> Iterator[Visitor]:
    """A visitor who has opened `place`; in the end nothing may have been complained of."""
    with browser.open("about:blank") as page:
        made = Visitor(page, address)
        made.size(1400, 900)
        made.go(place)
        yield made
        made.check_clean()
