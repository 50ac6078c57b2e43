"""Values: each is described and checked, and what is wrong is said in words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster.chart import CHART, templated

LINES = (CHART / "values.yaml").read_text().splitlines()
VALUES: dict[str, Any] = yaml.safe_load("\n".join(LINES))
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
Path = tuple[str, ...]


# ── one list of values ────────────────────────────────────────────────────────────────────────


def keys(value: Any, path: Path = ()) -> Iterator[Path]:
    """Of values.yaml: those below a map that holds the chart's own words."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from keys(inner, (*path, key))


def schema_at(path: Path) -> dict[str, Any] | None:
    schema: dict[str, Any] = SCHEMA
    for step in path:
        schema = resolved(schema)
        more = schema.get("additionalProperties", True)
        found = schema.get("properties", {}).get(step, more if isinstance(more, dict) else None)
        if found is None:
            return {} if schema.get("type") == "object" and more is True else None
        schema = found
    return resolved(schema)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    return found


def schema_keys(schema: dict[str, Any], path: Path = ()) -> Iterator[Path]:
    for key, inner in resolved(schema).get("properties", {}).items():
        yield (*path, key)
        yield from schema_keys(inner, (*path, key))


def test_every_value_is_in_the_schema() -> None:
    assert [path for path in keys(VALUES) if schema_at(path) is None] == []


FREE = {
    ("global",),  # of charts that have this one inside
    ("head", "config"),  # settings of the head, which it checks by itself
    ("agent", "seccompProfile"),
    ("webhook", "certificate", "issuerRef"),
}


def test_everything_in_the_schema_is_a_value() -> None:
    there = set(keys(VALUES))
    missing = [path for path in schema_keys(SCHEMA) if path not in there]
    left = [path for path in missing if not any(path[: len(free)] == free for free in FREE)]
    # What people fill in where there is nothing at first: requests and limits of resources.
    assert [path for path in left if path[1:2] != ("resources",)] == []


def test_a_map_that_the_chart_knows_has_no_other_names() -> None:
    for path in [(), *keys(VALUES)]:
        schema = schema_at(path)
        if schema and schema.get("properties"):
            assert schema.get("additionalProperties") is False, path


# ── comments ──────────────────────────────────────────────────────────────────────────────────


def undescribed() -> Iterator[str]:
    """Values with no comment before them, nor before a map that they are in."""
    path: list[tuple[int, str, bool]] = []
    for number, line in enumerate(LINES):
        if not (found := re.match(r"( *)([A-Za-z]\w*):", line)):
            continue
        depth = len(found[1])
        path = [step for step in path if step[0] < depth]
        is_said = LINES[number - 1].strip().startswith("#")
        path.append((depth, found[2], is_said))
        if not any(said for _, _, said in path):
            yield ".".join(name for _, name, _ in path)


def test_every_value_is_described() -> None:
    assert list(undescribed()) == []


OUR_WORDS = (
    "basePath", "grpcAddress", "hostPID", "readPods", "directory", "nvidia", "mode", "hasCa",
    "seccompProfile", "nodeSelectorTerms", "maxUnavailable", "timeoutSeconds", "files", "source",
    "workloadLabels", "exemptNamespaces", "caBundle", "clusterName", "storageSchemes", "headFrom",
    "ttlSecondsAfterFinished", "apiServerPorts", "serviceMonitor", "podMonitor", "existingSecret",
    "existingClaim",
)  # fmt: skip


def test_what_only_this_chart_has_is_described_by_itself() -> None:
    """Words that are Kubernetes' own need no more than their section."""
    for name in OUR_WORDS:
        at = [n for n, line in enumerate(LINES) if re.match(rf" +{name}:", line)]
        assert at and all(LINES[n - 1].strip().startswith("#") for n in at), name


# ── what is wrong is said ─────────────────────────────────────────────────────────────────────


def refusal(**values: Any) -> str:
    done = templated(values)
    assert done.returncode != 0, values
    return " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"imagee": {}}, "Additional property imagee is not allowed"),
        ({"head": {"persistance": {}}}, "head: Additional property persistance is not allowed"),
        ({"agent": {"hostPid": True}}, "agent: Additional property hostPid is not allowed"),
        (
            {"webhook": {"serviceAccount": {"annotation": {}}}},
            "Additional property annotation is not allowed",
        ),
        ({"webhook": {"replicas": "2"}}, "webhook.replicas: Invalid type. Expected: integer"),
        ({"webhook": {"timeoutSeconds": 30}}, "Must be less than or equal to 5"),
        ({"webhook": {"mode": "agent"}}, 'must be one of the following: "node", "sidecar"'),
        ({"agent": {"directory": "var/lib"}}, "agent.directory: Does not match pattern"),
        ({"image": {"digest": "sha256:12"}}, "image.digest: Does not match pattern"),
        ({"labels": {"a": 1}}, "labels.a: Invalid type. Expected: string"),
        ({"labels": {"app.kubernetes.io/name": "a"}}, "labels: Property name of"),
        ({"head": {"podLabels": {"helm.sh/chart": "a"}}}, "head.podLabels: Property name of"),
        ({"fullnameOverride": "my.name"}, "fullnameOverride: Does not match pattern"),
        ({"rbac": {"workloads": [{"apiGroups": ["*"], "resources": ["a"]}]}}, "rbac.workloads"),
        ({"head": {"config": {"head": {"points_day": 3}}}}, "points_day is not allowed"),
        ({"head": {"config": {"head": {"points_days": "3d"}}}}, "Expected: number"),
        ({"head": {"config": {"head": {"http_port": 80}}}}, "http_port is not allowed"),
        ({"head": {"config": {"telemetry": {"otlp_headers": "a=b"}}}}, "otlp_headers is not"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name(values: dict[str, Any], said: str) -> None:
    assert said in refusal(**values)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": {"tag": "latest"}}, "name a version, or a digest"),
        ({"image": {"repository": "registry.example/a:1"}}, "the tag is image.tag"),
        ({"head": {"enabled": False}}, "set `address`"),
        ({"head": {"enabled": False}, "address": "https://a:1"}, "tokens.existingSecret"),
        ({"gateway": {"enabled": True}}, "gateway.parentRefs"),
        ({"webhook": {"certificate": {"source": "secret"}}}, "webhook.certificate.secretName"),
        (
            {"webhook": {"certificate": {"source": "secret", "secretName": "a"}}},
            "webhook.certificate.caBundle",
        ),
        (
            {"tokens": {"existingSecret": "a"}, "watch": {"namespaces": ["b"]}},
            "make the Secrets `runwatch-ingest`",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_way_out(
    values: dict[str, Any], said: str
) -> None:
    assert said in refusal(**values)


def test_an_older_kubernetes_is_refused() -> None:
    done = templated({}, "--kube-version", "1.27.9")
    assert done.returncode != 0 and "requires kubeVersion: >=1.28" in done.stderr
    assert templated({}, "--kube-version", "1.28.0-gke.1").returncode == 0


def test_the_charts_page_lists_every_set_and_only_those() -> None:
    page = (CHART / "README.md").read_text()
    there = {path.name for path in (CHART / "ci").glob("*.yaml")}
    assert set(re.findall(r"\]\(ci/([\w-]+\.yaml)\)", page)) == there
