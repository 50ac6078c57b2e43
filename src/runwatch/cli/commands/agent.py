"""Run this node's agent: sample the host, see processes end, ship journals to a head.

The SDK starts one by itself when none runs; start it by hand, by systemd or as a DaemonSet where
it shall always be there.  One runs per node, user and directory; a second one ends at once.

example:
  runwatch agent --head gpu-head:8090 --idle 0
  runwatch agent --device-hz 10
"""

from __future__ import annotations

import argparse
import sys

from runwatch.agent import __main__ as agent

arguments = agent.arguments


def run(arguments: argparse.Namespace) -> int:
    after = sys.argv.index("agent") + 1 if "agent" in sys.argv else 1
    if not agent.run(arguments, sys.argv[after:]):
        print("an agent of this node and user serves that directory already")
    return 0
