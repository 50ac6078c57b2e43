"""An API server by hand: `python -m tests.cluster --dir DIR`, until Ctrl-C.

It prints its kubeconfig.  `--chart` installs the chart, too: without it the cluster has only the
kinds that the chart adds.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

from tests.cluster.chart import NAMESPACE, define, rendered
from tests.cluster.server import Cluster


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.cluster", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="of kubeconfigs and accounts")
    parser.add_argument("--chart", action="store_true", help="with all that the chart installs")
    options = parser.parse_args()
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before its thread: none may take them
    with Cluster(options.dir) as cluster:
        define(cluster)
        if options.chart:
            cluster.namespace(NAMESPACE)
            cluster.apply(rendered())
        print(f"export KUBECONFIG={cluster.kubeconfig.resolve()}", flush=True)
        signal.sigwait(signals)


if __name__ == "__main__":
    main()
