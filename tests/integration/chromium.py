"""A real browser that can reach nothing but this machine, driven over its own pipe."""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from runwatch import testing

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
NO_BROWSER = "no browser (apt-get install chromium)"
"""Why tests are skipped then; pytest's closing line says so."""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
    "--window-size=1400,850", "--hide-scrollbars",
)  # fmt: skip
SLOWER, LATENCY_MS = 4, 60
"""With SHAKEN set (`make shake`): scripts take so many times as long, answers so much more."""
_MOVED = ("navigated or closed", "context was destroyed", "Cannot find")


class Moved(AssertionError):
    """The page was left while it was asked."""


class Chromium:
    """`with Chromium() as browser: page = browser.open(url)`."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="chromium-")
        heard, self._say = os.pipe()
        self._hear, said = os.pipe()
        command = [PROGRAM, *FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        # It reads commands from descriptor 3 and answers on 4.
        script = f'exec "$0" "$@" 3<&{heard} 4>&{said}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, *command],
            pass_fds=(heard, said),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(heard)
        os.close(said)
        self._ids = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}
        """What it told, by session."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, 9)
        self._process.wait()
        os.close(self._say)
        self._reader.join()
        os.close(self._hear)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _read(self) -> None:
        rest = b""
        while piece := os.read(self._hear, 1 << 16):
            *whole, rest = (rest + piece).split(b"\0")
            for text in whole:
                message = json.loads(text)
                if "id" in message:
                    self._answers.pop(message["id"]).put(message)
                else:
                    self.events.setdefault(message.get("sessionId", ""), []).append(message)

    def ask(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        id, answer = next(self._ids), queue.Queue[dict[str, Any]]()
        self._answers[id] = answer
        message: dict[str, Any] = {"id": id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        text = json.dumps(message).encode() + b"\0"
        while text:
            text = text[os.write(self._say, text) :]
        said = answer.get(timeout=60)
        why = said.get("error", {}).get("message", "")
        if any(words in why for words in _MOVED):
            raise Moved(why)
        assert "error" not in said, (method, said["error"])
        found: dict[str, Any] = said["result"]
        return found

    def open(self, address: str, *, apart: bool = False) -> Page:
        """`apart`: as somebody else, with cookies of their own."""
        context = {"browserContextId": self._context()} if apart else {}
        target = self.ask("Target.createTarget", url="about:blank", **context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target, context)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.ask(f"{domain}.enable")
        if os.environ.get("SHAKEN"):
            page.ask("Emulation.setCPUThrottlingRate", rate=SLOWER)
            page.ask(
                "Network.emulateNetworkConditions", offline=False, latency=LATENCY_MS,
                downloadThroughput=-1, uploadThroughput=-1,
            )  # fmt: skip
        page.ask("Page.navigate", url=address)
        return page

    def tabs(self) -> dict[str, str]:
        """Addresses of what is open, by id."""
        found = self.ask("Target.getTargets")["targetInfos"]
        return {one["targetId"]: one["url"] for one in found if one["type"] == "page"}

    def _context(self) -> str:
        made: str = self.ask("Target.createBrowserContext")["browserContextId"]
        return made


class Page:
    """`with browser.open(…) as page:` closes it in the end."""

    def __init__(
        self, browser: Chromium, session: str, target: str, context: dict[str, str]
    ) -> None:
        self._browser = browser
        self._context = context
        self._session = session
        self._target = target

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.ask("Target.closeTarget", targetId=self._target)
        self._browser.events.pop(self._session, None)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def evaluate(self, script: str) -> Any:
        """The value of an expression, also of one that is awaited."""
        said = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        return said["result"].get("value")

    def until(self, script: str, seconds: float = 60.0) -> Any:
        """Wait until an expression is true; its value."""
        deadline = time.monotonic() + seconds * testing.patience
        while not (value := self._now(script)):
            if time.monotonic() > deadline:
                text = self.evaluate("document.body ? document.body.innerText.slice(0, 500) : ''")
                raise AssertionError(f"not within {seconds} s: {script}\n{text}\n{self.words()}")
            time.sleep(0.05)
        return value

    def _now(self, script: str) -> Any:
        """None while one page gives way to the next."""
        try:
            return self.evaluate(script)
        except Moved:
            return None

    @property
    def browser(self) -> Chromium:
        return self._browser

    def allow(self, *permissions: str) -> None:
        """What a person would be asked about."""
        self._browser.ask("Browser.grantPermissions", permissions=permissions, **self._context)

    def events(self, method: str) -> list[dict[str, Any]]:
        return [
            event["params"]
            for event in list(self._browser.events.get(self._session, ()))
            if event["method"] == method
        ]

    def words(self) -> list[str]:
        """What it complained of."""
        return [event["entry"]["text"] for event in self.events("Log.entryAdded")]

    def loaded(self) -> list[str]:
        """Addresses that answered."""
        return [event["response"]["url"] for event in self.events("Network.responseReceived")]

    @property
    def is_asking(self) -> bool:
        """Whether it waits for an answer to a question (streams have no end, and do not count)."""
        shown = [e["frame"]["loaderId"] for e in self.events("Page.frameNavigated")][-1:]
        asked = {
            event["requestId"]
            for event in self.events("Network.requestWillBeSent")
            if event.get("type") in ("Fetch", "XHR") and [event["loaderId"]] == shown
        }
        for over in ("Network.loadingFinished", "Network.loadingFailed"):
            asked -= {event["requestId"] for event in self.events(over)}
        return bool(asked)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))
