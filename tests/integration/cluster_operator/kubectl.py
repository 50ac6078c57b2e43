"""What a person sees."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cluster_operator.site import Site


def printed(site: Site, *words: str) -> str:
    kubectl = shutil.which("kubectl") or shutil.which("kubectl", path=Path(sys.executable).parent)
    if kubectl is None:
        pytest.skip("no kubectl (apt-get install kubernetes-client)")
    done = subprocess.run(
        [kubectl, *words],
        env=os.environ | {"KUBECONFIG": str(site.api.kubeconfig), "HOME": str(site.root)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
