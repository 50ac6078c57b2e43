"""An API server by hand: `python -m tests.cluster --dir DIR`, until Ctrl-C.

It prints its kubeconfig, and has the kinds that the chart adds.  `--chart` installs the rest, and
lays what the pods of the webhook and the operator are given into DIR:

    python -m tests.cluster --dir DIR --chart --service runwatch/runwatch-webhook=8443
    env $(cat DIR/runwatch-webhook.env) runwatch k8s webhook --port 8443 \\
        --server https://127.0.0.1:PORT --account DIR/accounts/runwatch/runwatch-webhook

There are no controllers, nodes and kubelets: a Job makes no pods.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.chart import NAMESPACE, define, of_kind, rendered
from tests.cluster.server import Cluster


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m tests.cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--dir", type=Path, required=True, help="of kubeconfigs and accounts")
    parser.add_argument("--chart", action="store_true", help="with all that the chart installs")
    parser.add_argument(
        "--service",
        action="append",
        default=[],
        metavar="NAMESPACE/NAME=PORT",
        help="where the Service of a webhook is on this machine",
    )
    options = parser.parse_args()
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before its thread: none may take them
    with Cluster(options.dir) as cluster:
        define(cluster)
        if options.chart:
            cluster.namespace(NAMESPACE)
            chart = rendered()
            cluster.apply(chart)
            for each in of_kind(chart, "ServiceAccount"):
                cluster.account(NAMESPACE, each["metadata"]["name"])
            for each in of_kind(chart, "Deployment"):
                lay_environment(options.dir, each)
        for each in options.service:
            place, _, port = each.partition("=")
            namespace, _, name = place.partition("/")
            cluster.services[namespace, name] = "127.0.0.1", int(port)
        print(f"export KUBECONFIG={cluster.kubeconfig.resolve()}  # {cluster.server}", flush=True)
        signal.sigwait(signals)


def lay_environment(folder: Path, deployment: Mapping[str, Any]) -> None:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    plain = [each for each in container["env"] if "value" in each]
    lines = "".join(f"{each['name']}={each['value']}\n" for each in plain)
    (folder / f"{deployment['metadata']['name']}.env").write_text(lines)


if __name__ == "__main__":
    main()
