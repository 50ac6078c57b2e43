"""Nothing of a pod outlives its test, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runwatch.testing import until
from tests.integration.pods import memory
from tests.integration.pods.left import inside
from tests.integration.pods.network import REPOSITORY
from tests.integration.pods.site import Site

pytestmark = pytest.mark.xdist_group("pods")

KILLED = """
import sys, time
from pathlib import Path
from runwatch.testing import until
from tests.integration.pods.site import Site
from tests.integration.pods.workloads import ours

site = Site(Path(sys.argv[1]))
node = site.node("gpu-1")
site.start_agent(node)
pod = site.play(ours("left-alone").admitted(), node)
until(lambda: site.watches(node, pod.main.pid))
print("played", flush=True)
time.sleep(600)
"""


def test_a_test_that_is_killed_leaves_no_process(site: Site, tmp_path: Path) -> None:
    """An agent that has acted as its users is among them: the kernel forgot whom it ends with."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as test:
        try:
            assert test.stdout is not None and test.stdout.readline() == b"played\n"
            assert len(inside(tmp_path)) >= 4
        finally:
            test.send_signal(signal.SIGKILL)
    until(lambda: not inside(tmp_path), 60, f"{inside(tmp_path)} to end")
    mine = [group for group in memory.made() if f"-{test.pid}-" in group.name]
    assert not memory.why_not()  # the next test takes away what they were in
    assert not any(group.exists() for group in mine)
