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

from runwatch.address import Listening, read_address
from runwatch.head.http.pages import BUILT
from runwatch.testing import until
from tests import tokens
from tests.e2e.controls import NAMING, called, claimed_by
from tests.integration.chromium import NO_BROWSER, PROGRAM, Chromium, Moved, Page
from tests.integration.processes import end

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
needs_browser = pytest.mark.skipif(not PROGRAM, reason=NO_BROWSER)
needs_page = pytest.mark.skipif(not (BUILT / "index.html").exists(), reason="no page was built")
READ = """((c) => { if (!c || !c.width) return new Uint32Array();
    const often = {willReadFrequently: true};
    const made = new OffscreenCanvas(c.width, c.height).getContext("2d", often);
    made.drawImage(c, 0, 0);
    return new Uint32Array(made.getImageData(0, 0, c.width, c.height).data.buffer); })"""
FRAMES = """new Promise((done) => { setTimeout(done, 200);
    requestAnimationFrame(() => requestAnimationFrame(done)); })"""
KEYS = {
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "Escape": 27,
    "Enter": 13, "Tab": 9, "End": 35,
}  # fmt: skip


def _selected(selector: str) -> str:
    return f"document.querySelector({json.dumps(selector)})"


def _saying(text: str, tag: str) -> str:
    return f"""(() => {{ const all = [...document.querySelectorAll({json.dumps(tag)})];
        const says = (e) => e.innerText.replace(/\\s+/g, " ").trim();
        return all.find(e => says(e) === {json.dumps(text)})
            ?? all.find(e => says(e).startsWith({json.dumps(text)})); }})()"""


@contextmanager
def head(root: Path, *options: str) -> Iterator[Listening]:
    """A head over a directory, as a process."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RUNWATCH_")}
    environment["RUNWATCH_DIR"] = str(root)
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
        yield tokens.remember(until(ready, 60, "the head to start"))
    finally:
        end(process, signal.SIGTERM)


class Visitor:
    """One page in a browser, looked at."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.meant = ""
        """Part of complaints that are to be."""
        self.used: set[str] = set()
        """Controls that were operated, as `controls` calls them."""
        self.is_skipped = False
        """The test ended before it had operated them all."""
        self.page.ask("Page.addScriptToEvaluateOnNewDocument", source=NAMING)

    # ── seeing ────────────────────────────────────────────────────────────────────────────────

    def see(self, script: str, seconds: float = 30.0) -> Any:
        """Wait until it is so."""
        return self.page.until(script, seconds)

    def there(self, selector: str) -> None:
        self.see(f"document.querySelector({json.dumps(selector)}) !== null")

    def sees(self, text: str, inside: str = "body", seconds: float = 30.0) -> None:
        script = f"{_selected(inside)}?.innerText.includes({json.dumps(text)})"
        self.see(script, seconds)

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
        """Left, top, width and height of an element, scrolled into view.

        What is still to come would push it away from under the mouse: wait until nothing is."""
        return self._place(_selected(selector), selector)

    def _place(self, element: str, what: str) -> tuple[float, float, float, float]:
        # What has been answered is on the page two frames later, and so is what it leads to.
        look = f"""(() => {{ const look = () => {{
                const e = {element};
                if (!e) return null;
                e.scrollIntoView({{block: "center"}});
                const b = e.getBoundingClientRect();
                return [b.left, b.top, b.width, b.height];
            }};
            const before = String(look());
            return {FRAMES}.then(() => {{
                const now = look();
                return now && before === String(now) ? now : null; }}); }})()"""

        def steady() -> list[float] | None:
            if self.page.is_asking:
                return None
            try:
                found: list[float] | None = self.page.evaluate(look)
            except Moved:
                return None
            return None if self.page.is_asking else found

        left, top, width, height = until(steady, 30, f"{what} to stay where it is")
        return left, top, width, height

    def pixels(self, selector: str, besides: str = "") -> str:
        """What a canvas shows, once it shows more than a ground and other than `besides`."""
        found: str = self.see(
            f"""(() => {{ const words = {READ}(document.querySelector({json.dumps(selector)}));
            if (new Set(words).size < 3) return "";
            const shown = String(words.reduce((h, w) => (Math.imul(h, 31) + w) | 0, 7));
            return shown === {json.dumps(besides)} ? "" : shown; }})()"""
        )
        return found

    # ── doing ─────────────────────────────────────────────────────────────────────────────────

    def go(self, place: str = "") -> None:
        self.page.ask("Page.navigate", url=f"{self.address}/#/{place}")

    def reload(self) -> None:
        """And wait for the new page: the old one is there for a moment, and says the same."""
        before = len(self.page.events("Page.frameNavigated"))
        self.page.ask("Page.reload")
        until(lambda: len(self.page.events("Page.frameNavigated")) > before, 30, "a new page")

    def click(self, selector: str) -> None:
        self._click(_selected(selector), selector)

    def click_text(self, text: str, tag: str = "button") -> None:
        """The element of that kind that says exactly this, or begins with it."""
        self._click(_saying(text, tag), f"{tag} with {text!r}")

    def _click(self, element: str, what: str) -> None:
        """Until it has reached what was meant, and not what came in between.

        `element` is looked for each time: the page may have put another in its place."""
        reached = f"""(() => {{ const e = {element};
            const is_it = (hit) => {{ const e = {element};
                return Boolean(e) && (e.contains(hit) || e.control === hit); }};
            window.reached = false;
            addEventListener("pointerdown", (event) => {{ window.reached = is_it(event.target); }},
                {{capture: true, once: true}});
            const b = e.getBoundingClientRect();
            return is_it(document.elementFromPoint(b.left + b.width / 2, b.top + b.height / 2));
            }})()"""

        def done() -> bool:
            left, top, width, height = self._place(element, what)
            if not self.page.evaluate(reached):
                return False
            self.press(left + width / 2, top + height / 2)
            try:
                return self.page.evaluate("window.reached") is not False  # undefined: it led away
            except Moved:
                return True

        until(done, 30, f"a click on {what}")

    def press(self, x: float, y: float, times: int = 1) -> None:
        self.mouse("mouseMoved", x, y)
        self.use(f"document.elementFromPoint({x}, {y})", "double click" if times > 1 else "click")
        for count in range(1, times + 1):
            self.mouse("mousePressed", x, y, clickCount=count)
            self.mouse("mouseReleased", x, y, clickCount=count)

    def point(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Hold the mouse over it, at these shares of its width and height."""
        left, top, width, height = self.place(selector)
        x, y = left + across * width, top + down * height
        self.use(f"document.elementFromPoint({x}, {y})", "point")
        self.mouse("mouseMoved", x, y)

    def use(self, element: str, gesture: str) -> None:
        """Note that an element, by an expression, is operated."""
        found = self.page.evaluate(f"controls.of({element})")
        if found:
            page, kind, words = found
            self.used |= {called(page, kind, words), called(page, kind, words, gesture)}

    def drag(self, selector: str, start: float, stop: float) -> None:
        """From one share of an element's width to another."""
        left, top, width, height = self.place(selector)
        y = top + height / 2
        self.mouse("mouseMoved", left + start * width, y)
        self.use(f"document.elementFromPoint({left + start * width}, {y})", "drag")
        self.mouse("mousePressed", left + start * width, y)
        for part in (0.3, 0.7, 1.0):
            self.mouse("mouseMoved", left + (start + (stop - start) * part) * width, y, buttons=1)
        self.mouse("mouseReleased", left + stop * width, y)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.page.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **(button | more))

    def wheel(self, selector: str, share: float, amount: float, held: str = "Ctrl") -> None:
        """Turn the wheel at a share of the element's width, with Ctrl or Shift held."""
        left, top, width, height = self.place(selector)
        x, y = left + share * width, top + height / 2
        self.use(f"document.elementFromPoint({x}, {y})", f"{held} + wheel")
        turn = {"deltaX": 0, "deltaY": amount, "modifiers": {"Ctrl": 2, "Shift": 8}[held]}
        self.page.ask("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, **turn)

    def key(self, key: str) -> None:
        code = KEYS.get(key, ord(key[0]))
        self.use("document.activeElement", key)
        text = {"text": key} if len(key) == 1 else {}
        same = {"key": key, "windowsVirtualKeyCode": code}
        if len(key) > 1:
            same["code"] = key
        self.page.ask("Input.dispatchKeyEvent", type="keyDown", **same, **text)
        self.page.ask("Input.dispatchKeyEvent", type="keyUp", **same)

    def type(self, selector: str, text: str) -> None:
        self.click(selector)
        self.page.evaluate(f"document.querySelector({json.dumps(selector)}).select?.()")
        self.page.ask("Input.insertText", text=text)

    def focus(self, selector: str) -> None:
        self.there(selector)
        self.use(f"document.querySelector({json.dumps(selector)})", "focus")
        self.page.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")

    def choose(self, selector: str, value: str) -> None:
        self.there(selector)
        self.use(f"document.querySelector({json.dumps(selector)})", "choose")
        self.page.evaluate(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.value = {json.dumps(value)};
            e.dispatchEvent(new Event("input", {{bubbles: true}}));
            e.dispatchEvent(new Event("change", {{bubbles: true}})); }})()"""
        )

    def opens(self, text: str, tag: str = "main a", *, at: str = "") -> str:
        """Click on what opens a tab of its own; where that leads to, in the end to `at`."""
        browser = self.page.browser
        before = browser.tabs()
        self.click_text(text, tag)

        def made() -> tuple[str, str] | None:
            new = [(id, url) for id, url in browser.tabs().items() if id not in before]
            return new[0] if new and new[0][1].startswith("http") and at in new[0][1] else None

        id, url = until(made, 30, f"{text} to open a tab")
        browser.ask("Target.closeTarget", targetId=id)
        return str(url)

    def downloads(self, text: str, folder: Path, tag: str = "main a") -> bytes:
        """Click on what is downloaded; what was in the file."""
        save = {"behavior": "allow", "downloadPath": str(folder)}
        self.page.browser.ask("Browser.setDownloadBehavior", **save)
        self.click_text(text, tag)

        def whole() -> Path | None:
            files = [file for file in folder.iterdir() if file.suffix != ".crdownload"]
            return files[0] if len(files) == 1 and not list(folder.glob("*.crdownload")) else None

        file: Path = until(whole, 30, f"{text} to be downloaded")
        found = file.read_bytes()
        file.unlink()
        return found

    def copy(self, button: str) -> str:
        """Press a button that copies; what is in the clipboard once it has said so."""
        self.page.allow("clipboardReadWrite", "clipboardSanitizedWrite")
        self.page.ask("Page.bringToFront")
        # What it says passes.
        self.page.evaluate(
            """new MutationObserver(() => {
            window.copied ||= document.body.innerText.includes("Copied"); }).observe(
            document.body, {subtree: true, childList: true, characterData: true})"""
        )
        self.click_text(button)
        self.see("window.copied")
        found: str = self.page.evaluate("navigator.clipboard.readText()")
        return found

    def size(self, width: int, height: int) -> None:
        self.page.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.see(f"innerWidth === {width}")

    def theme(self, name: str) -> None:
        """What the system prefers; until the page has heard of it."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.page.ask("Emulation.setEmulatedMedia", features=[feature])
        other = {"dark": "light", "light": "dark"}[name]
        self.there(f"header [aria-label='Switch to the {other} theme']")

    # ── judging ───────────────────────────────────────────────────────────────────────────────

    def check_clean(self) -> None:
        """Nothing was complained of but what was meant, and nobody else was asked."""
        logged = [e["entry"] for e in self.page.events("Log.entryAdded")]
        said_ill = [e["text"] for e in logged if e["level"] in ("error", "warning")]
        bad = [text for text in said_ill if not (self.meant and self.meant in text)]
        assert not bad, (bad, [e.get("url") for e in logged])
        thrown = self.page.events("Runtime.exceptionThrown")
        assert [e["exceptionDetails"] for e in thrown] == []
        said = self.page.events("Runtime.consoleAPICalled")
        assert [e["args"] for e in said if e["type"] in ("error", "warning", "assert")] == []
        asked = [e["request"]["url"] for e in self.page.events("Network.requestWillBeSent")]
        ours = (f"{self.address}/", "data:", "blob:", "about:")
        assert asked and [url for url in asked if not url.startswith(ours)] == []

    def check_accessible(self) -> None:
        """No finding of axe that is serious or worse."""
        if not AXE.exists():
            self.is_skipped = True
            pytest.skip("axe-core is not installed: python web/build.py test")
        self.page.evaluate(AXE.read_text() + ";0")
        found = self.page.evaluate(
            """axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations
            .filter(v => v.impact === "serious" || v.impact === "critical")
            .map(v => [v.id, v.impact, v.nodes.slice(0, 5).map(n => n.html.slice(0, 160) + " " +
                (n.any[0]?.message ?? ""))]))"""
        )
        assert found == [], found


def log_in(browser: Chromium, address: str) -> None:
    """By the link that the head printed; from then on the browser has its cookie."""
    with browser.open(tokens.link(address)) as page:
        page.until("location.href.startsWith('http') && !location.search.includes('token')")


@contextmanager
def visitor(browser: Chromium, address: str, *, apart: bool = False) -> Iterator[Visitor]:
    """A visitor who has opened nothing yet; in the end nothing may have been complained of.

    `apart`: somebody with cookies of their own."""
    with browser.open("about:blank", apart=apart) as page:
        made = Visitor(page, address)
        made.size(1400, 900)
        yield made
        made.check_clean()


@contextmanager
def operating(
    browser: Chromium, address: str, request: pytest.FixtureRequest, *, apart: bool = False
) -> Iterator[Visitor]:
    """A visitor who in the end must have operated what the test is said to operate."""
    failed = request.session.testsfailed
    with visitor(browser, address, apart=apart) as opened:
        yield opened
    if request.session.testsfailed == failed and not opened.is_skipped:
        missing = claimed_by(request.node.originalname) - opened.used
        assert not missing, f"not operated: {sorted(missing)}; only {sorted(opened.used)}"
