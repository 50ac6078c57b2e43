"""The way without Helm: `deploy/daemonset.yaml` is the chart's agent, with nothing around it."""

from __future__ import annotations

import copy

import yaml

from tests.cluster.chart import CHART
from tests.unit.deploy.kubernetes import NEWEST, complaints
from tests.unit.deploy.releases import Thing, with_values
from tests.unit.deploy.restricted import breaches

ROOT = CHART.parents[2]
TEXT = (ROOT / "deploy/daemonset.yaml").read_text()
SAME = {
    "address": "http://head-1:8090",
    "head": {"enabled": False},
    "tokens": {"existingSecret": "runwatch"},
    "agent": {
        "nodeSelectorTerms": [],
        "seccompProfile": {"type": "Localhost", "localhostProfile": "runwatch-agent.json"},
    },
}


def test_it_is_the_charts_agent_under_a_name_and_a_label_of_its_own() -> None:
    written = yaml.safe_load(TEXT)
    [made] = with_values(**SAME).of("DaemonSet")
    label = {"app": "runwatch-agent"}
    assert made["metadata"]["name"] == "runwatch-agent"
    assert written["metadata"] == {"name": "runwatch-agent"}
    assert without_labels(written) == without_labels(made)
    spec = written["spec"]
    assert spec["selector"] == {"matchLabels": label} and spec["template"]["metadata"] == {
        "labels": label
    }


def without_labels(daemon: Thing) -> Thing:
    """Nor the account, which there is the namespace's own, without rights."""
    spec: Thing = copy.deepcopy(daemon["spec"])
    del spec["selector"], spec["template"]["metadata"]
    spec["template"]["spec"].pop("serviceAccountName", None)
    return spec


def test_it_is_valid_and_asks_for_no_more_than_the_chart() -> None:
    written = yaml.safe_load(TEXT)
    assert complaints(written, (1, 28)) == complaints(written, NEWEST) == []
    [made] = with_values(**SAME).of("DaemonSet")
    template, other = written["spec"]["template"], made["spec"]["template"]
    found = breaches(template["metadata"], template["spec"])
    assert found == breaches(other["metadata"], other["spec"]) and "hostPID" in found


def test_what_operating_says_of_it_is_in_it() -> None:
    """The part of the manifest that the page shows."""
    page = (ROOT / "docs/operating.md").read_text()
    [shown] = [
        yaml.safe_load(block)
        for block in page.split("```yaml\n")[1:]
        for block in [block.partition("```")[0]]
        if "hostPID" in block
    ]
    pod = yaml.safe_load(TEXT)["spec"]["template"]["spec"]
    said = shown["spec"]
    assert said["hostPID"] is pod["hostPID"]
    [its], [agent] = said["containers"], pod["containers"]
    assert its["name"] == agent["name"] and its["command"] == agent["command"]
    context = pod["securityContext"] | agent["securityContext"]
    assert its["securityContext"].items() <= context.items()
    assert set(context) - set(its["securityContext"]) == {"runAsGroup"}
