"""Run this node's agent: it samples the host, sees processes end, and ships journals to a head.

The SDK starts an agent if none runs.  To keep one always, start it by hand, with systemd, or as a
DaemonSet.  One agent runs per node, user and directory; a second one ends at once.

example:
  runwatch agent --head http://gpu-head:8090 --idle 0
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
        print("an agent of this node and user already serves that directory")
    return 0
