"""What the chart puts into a cluster, as far as pods of users meet it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from runwatch.k8s.settings import WebhookSettings
from runwatch.settings import load
from tests.cluster.chart import NAMESPACE as NAMESPACE
from tests.cluster.chart import RELEASE, of_kind, rendered
from tests.integration.pods.network import NODE, REPOSITORY

HEAD: Final = "http://head-1:8090"
NAMES: Final = {"head-1": NODE}
"""What a cluster's DNS knows."""
TOKENS: Final = f"{RELEASE}-tokens"
"""The Secret with the head's tokens, each under ROLE-NAME."""
AGENTS: Final = "ingest-agents"
JOBS: Final = "ingest-jobs"
Template = dict[str, Any]


@cache
def _things() -> list[Template]:
    return rendered({"address": HEAD})


def agent() -> Template:
    """Of the pods of its DaemonSet."""
    [daemon] = of_kind(_things(), "DaemonSet")
    template: Template = daemon["spec"]["template"]
    return template


def manifest() -> Template:
    """The same of the DaemonSet for those who do not use the chart."""
    written = (REPOSITORY / "deploy" / "daemonset.yaml").read_text()
    template: Template = yaml.safe_load(written)["spec"]["template"]
    return template


def image() -> str:
    name: str = agent()["spec"]["containers"][0]["image"]
    return name


@cache
def webhook() -> WebhookSettings:
    """As its Deployment gives them to it."""
    [deployment] = of_kind(_things(), "Deployment", f"{RELEASE}-webhook")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    told = {each["name"]: each["value"] for each in container["env"]}
    # It has no settings file.
    return load(WebhookSettings, section="webhook", environ=told, file=Path("none")).values
