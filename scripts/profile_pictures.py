"""Make docs/images/profiles-*.png: a real browser looks at real profiles, the network cut off."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.integration.chromium import Chromium  # noqa: E402

IMAGES = ROOT / "docs" / "images"
TRACES = ROOT / "tests" / "fixtures" / "profiles"
XPROF = "viewers/xprof/data/plugin/profile/trace_viewer@?run=llama-70b%2Fwarmup&tag=trace_viewer@"
TRACE = "viewers/trace?run=llama-70b&session=warmup&file=gpu-17.kineto.json.gz"
SETTLE_SECONDS = 4  # both move into place when they have drawn
IN_FRAME = "(document.querySelector('iframe')?.contentDocument?.body?.innerText || '')"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder, "llama-70b", "plugins", "profile", "warmup")
        session.mkdir(parents=True)
        shutil.copy(TRACES / "jax.xplane.pb", session / "gpu-17.xplane.pb")
        shutil.copy(TRACES / "torch.kineto.json.gz", session / "gpu-17.kineto.json.gz")
        command = [sys.executable, "-m", "runwatch.cli", "host", folder, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as head:
            try:
                take(head)
            finally:
                head.terminate()


def take(head: "subprocess.Popen[str]") -> None:
    assert head.stdout is not None
    found = re.search(r"(http://\S+?)/viewers/\S*", head.stdout.readline())
    assert found is not None
    with Chromium() as browser:
        browser.open(found[0]).until("!location.search.includes('token')")  # it has a cookie now
        page = browser.open(f"{found[1]}/{XPROF}&host=gpu-17")
        page.until(f"{IN_FRAME}.includes('tf_XLA')")
        time.sleep(SETTLE_SECONDS)
        page.picture(IMAGES / "profiles-xprof.png")
        page = browser.open(f"{found[1]}/{TRACE}")
        page.until("/python \\d+/.test(document.body.innerText)")
        page.evaluate("document.querySelectorAll('.pf-track__shell')[1]?.click()")
        time.sleep(SETTLE_SECONDS)
        page.picture(IMAGES / "profiles-perfetto.png")
    print(f"Wrote {IMAGES.relative_to(ROOT)}/profiles-xprof.png and profiles-perfetto.png")


if __name__ == "__main__":
    main()
