"""The chart says what the programs read: their commands, variables, settings and tokens."""

from __future__ import annotations

import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from runwatch.agent.settings import AgentSettings
from runwatch.cli.__main__ import parser
from runwatch.cli.commands.config import SETTINGS
from runwatch.cli.variables import PROGRAM
from runwatch.head.access.given_tokens import role_and_name
from runwatch.head.settings import HeadSettings
from runwatch.k8s.names import CAPTURES, CONNECTIONS, LEASE, RUNS
from runwatch.k8s.operator.settings import OperatorSettings
from runwatch.k8s.settings import WebhookSettings
from runwatch.k8s.workloads import PLURALS, SCHEDULES
from runwatch.settings import load
from tests.integration.processes import Cluster
from tests.mounted import MountedSecret
from tests.unit.deploy.releases import SETS, Release, Thing, release, values_of, with_values

EVERY_SET = pytest.mark.parametrize("name", SETS)
OF_PROGRAMS = {variable.name for variable in PROGRAM}
READ = {
    "head": {f.metadata["env"] for kind in SETTINGS.values() for f in fields(kind)},
    "agent": {f.metadata["env"] for f in fields(AgentSettings)},
    "webhook": {f.metadata["env"] for f in fields(WebhookSettings)},
    "operator": {f.metadata["env"] for f in fields(OperatorSettings)},
    "test": set[str](),
}
OF_THE_RUNTIME = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}


def container(of: Release, part: str) -> Thing:
    [found] = of.run(part).spec["containers"]
    assert isinstance(found, dict)
    return found


def environment(of: Release, part: str) -> dict[str, str]:
    """Where the kubelet fills in a field, its name."""
    return {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in container(of, part)["env"]
    }


def parts(of: Release) -> Iterator[str]:
    return (run.part for run in of.runs())


@EVERY_SET
def test_every_variable_is_one_that_its_program_reads(name: str) -> None:
    of = release(name)
    for part in parts(of):
        told = environment(of, part).keys()
        own = values_of(name).get(part, {}).get("extraEnv", [])
        assert told - {each["name"] for each in own} <= READ[part] | OF_PROGRAMS | OF_THE_RUNTIME


@EVERY_SET
def test_every_command_is_one_that_runwatch_understands(name: str) -> None:
    of = release(name)
    for part in parts(of):
        program, command, *words = container(of, part)["command"]
        assert program == "runwatch"
        arguments = parser(command).parse_args([command, *words])
        assert callable(arguments.run)


def test_a_command_that_runwatch_does_not_understand_would_be_seen() -> None:
    with pytest.raises(SystemExit):
        parser("head").parse_args(["head", "--tokens-directori=/a"])


@EVERY_SET
def test_each_program_takes_its_settings(name: str, tmp_path: Path) -> None:
    of, none = release(name), tmp_path / "none"
    for part in parts(of):
        told = environment(of, part) | {"RUNWATCH_TOKEN_FILE": ""}
        match part:
            case "agent":
                agent = load(AgentSettings, section="agent", environ=told, file=none).values
                assert agent.head and str(agent.root) == "/var/lib/runwatch"
            case "webhook":
                webhook = load(WebhookSettings, section="webhook", environ=told, file=none).values
                _check_webhook(of, webhook)
            case "operator":
                operator = load(OperatorSettings, section="operator", environ=told, file=none)
                assert operator.values.head.startswith("http") and operator.values.link_base
                assert operator.values.identity == "metadata.name"


def _check_webhook(of: Release, webhook: WebhookSettings) -> None:
    [configuration] = of.of("MutatingWebhookConfiguration")
    for entry in configuration["webhooks"]:
        assert webhook.seconds < entry["timeoutSeconds"]
        [left] = [
            each
            for each in entry["namespaceSelector"]["matchExpressions"]
            if each["key"] == "kubernetes.io/metadata.name"
        ]
        assert webhook.exempt_namespaces == set(left["values"])
    assert webhook.image == container(of, "webhook")["image"]
    if webhook.certificate is None:
        assert webhook.configuration == configuration["metadata"]["name"]
        assert webhook.certificate_secret in [s["metadata"]["name"] for s in of.of("Secret")]
        assert webhook.service in [s["metadata"]["name"] for s in of.of("Service")]
    for run in of.runs():
        if run.part == "agent":
            [volume] = [each for each in run.spec["volumes"] if each["name"] == "runwatch"]
            assert webhook.directory == volume["hostPath"]["path"]


def test_a_slow_webhook_answers_before_the_api_server_gives_up() -> None:
    for seconds in range(1, 6):
        of = with_values(webhook={"timeoutSeconds": seconds})
        told = float(environment(of, "webhook")["RUNWATCH_WEBHOOK_SECONDS"])
        assert 0 < told < seconds and told <= 4.5


# ── the head's own settings ───────────────────────────────────────────────────────────────────

# The container says these, by its command line or by a variable.
SAID = {"dir", "bind", "http_port", "grpc_port", "grpc_address", "base_path", "tls_certificate",
        "tls_key", "tokens_directory", "token", "token_file"}  # fmt: skip
# Ports that no Service has, and doors without a token, which a pod's address does not allow.
NOT_IN_A_POD = {"otlp_grpc_port", "otlp_http_port", "open_ingest", "gswarm_open"}


def test_every_setting_that_makes_sense_in_a_pod_can_be_said() -> None:
    from tests.unit.deploy.test_chart_values import SCHEMA

    known = SCHEMA["properties"]["head"]["properties"]["config"]["properties"]
    for section in ("head", "telemetry", "gcp"):
        left = SAID | NOT_IN_A_POD if section == "head" else set()
        wanted = {f.name for f in fields(SETTINGS[section]) if not f.metadata["secret"]} - left
        assert set(known[section]["properties"]) == wanted, section


def test_what_is_said_of_the_head_arrives(tmp_path: Path) -> None:
    of = release("everything")
    [config] = of.of("ConfigMap")
    file = tmp_path / "config.toml"
    file.write_text(config["data"]["config.toml"])
    said = values_of("everything")["head"]["config"]
    assert tomllib.loads(file.read_text()) == {"gcp": {}} | said
    head = load(HeadSettings, section="head", environ={}, file=file).values
    assert (head.points_days, head.price_per_device_hour, head.run_bytes) == (30, 2.5, 1 << 40)
    assert head.cors_origins == "https://dashboard.example:3000" and head.hang_watch is True
    sent = load(SETTINGS["telemetry"], section="telemetry", environ={}, file=file).values
    assert sent.remote_write == "https://metrics.example/api/v1/write"


@pytest.mark.parametrize("text", ['a "b" \\ c', "ä # [head]", "line\nbreak", "{{ .Values }}"])
def test_words_reach_the_head_as_they_are(text: str, tmp_path: Path) -> None:
    of = with_values(
        head={"config": {"gcp": {"cluster_name": text}, "head": {"run_bytes": 1 << 52}}}
    )
    [config] = of.of("ConfigMap")
    told = tomllib.loads(config["data"]["config.toml"])
    assert told["gcp"]["cluster_name"] == text and told["head"]["run_bytes"] == 1 << 52


def test_other_settings_start_the_head_anew_and_others_values_do_not() -> None:
    def head(**values: Any) -> Thing:
        return with_values(**values).run("head").meta

    one = head(head={"config": {"head": {"points_days": 3}}})
    assert one != head() == head(operator={"replicas": 1}, monitoring={"serviceMonitor": True})


# ── tokens ────────────────────────────────────────────────────────────────────────────────────

ROLES = {
    "ingest-agents": "ingest",
    "ingest-jobs": "ingest",
    "ingest-operator": "ingest",
    "operate-operator": "operate",
    "view-prometheus": "view",
}


def test_the_secrets_keys_are_files_that_a_head_takes_as_tokens() -> None:
    [secret] = [s for s in release("default").of("Secret") if "tokens" in s["metadata"]["name"]]
    assert secret["data"].keys() - {"main"} == ROLES.keys()
    assert {key: role_and_name(key)[0] for key in ROLES} == ROLES


@EVERY_SET
def test_every_part_reads_a_token_that_is_mounted_where_it_looks(name: str) -> None:
    of = release(name)
    for run in of.runs():
        [its] = run.spec["containers"]
        told = {each["name"]: each.get("value", "") for each in its["env"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in its["volumeMounts"]}
        files = {
            f"{mounts[volume['name']]}/{item['path']}"
            for volume in run.spec["volumes"]
            if "secret" in volume
            for item in volume["secret"].get("items", ())
        }
        named = {v for k, v in told.items() if k.endswith("TOKEN_FILE") or k == "RUNWATCH_CA"}
        assert named <= files, run.part
        assert named or run.part in ("head", "webhook")


# ── a head as the chart starts it ─────────────────────────────────────────────────────────────


class Pod:
    """The chart's head, on this machine: folders where its volumes are, ports that are free."""

    def __init__(self, of: Release, cluster: Cluster) -> None:
        self._of, self._cluster = of, cluster
        self._its = container(of, "head")
        self.words = {key: f"{key}-".ljust(32, "x") for key in ("main", *ROLES)}

    def options(self) -> list[str]:
        secret = MountedSecret(self._cluster.root / "tokens", self.words)
        here = {"/etc/runwatch/tokens": str(secret.place), "--bind=0.0.0.0": "--bind=127.0.0.1"}
        program, command, *words = self._its["command"]
        assert (program, command) == ("runwatch", "head")
        kept = [word for word in words if "-port=" not in word]
        for there, place in here.items():
            kept = [word.replace(there, place) for word in kept]
        assert len(kept) == len(words) - 2
        return kept

    def start(self) -> str:
        return self._cluster.start_head(*self.options()).http.removesuffix("/team/runwatch")

    def probes(self) -> list[str]:
        names = ("startupProbe", "livenessProbe", "readinessProbe")
        return [self._its[name]["httpGet"]["path"] for name in names]


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    cluster = Cluster(tmp_path)
    values = values_of("everything")["head"] | {"tls": {"secretName": ""}}
    try:
        yield Pod(with_values(head=values, monitoring={"serviceMonitor": True}), cluster)
    finally:
        cluster.close()


def test_a_head_that_is_started_as_the_chart_says_serves_what_the_chart_asks(pod: Pod) -> None:
    """Below a path of a proxy, too: neither the kubelet nor Prometheus comes by it."""
    address = pod.start()
    for path in pod.probes():
        assert asked(address + path) == 200, path
    [monitor] = with_values(monitoring={"serviceMonitor": True}).of("ServiceMonitor")
    [endpoint] = monitor["spec"]["endpoints"]
    token = pod.words[endpoint["authorization"]["credentials"]["key"]]
    assert asked(address + endpoint["path"], token) == 200
    assert asked(address + endpoint["path"], pod.words["ingest-agents"]) == 403
    assert asked(address + endpoint["path"]) == 401
    assert asked(f"{address}/team/runwatch/api/v1/runs", pod.words["main"]) == 200
    assert asked(f"{address}/team/runwatch/api/v1/runs", pod.words["operate-operator"]) == 200


def asked(url: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=100
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


# ── rights ────────────────────────────────────────────────────────────────────────────────────


def test_every_owner_that_is_known_may_be_read() -> None:
    plurals = {(group, plural) for (group, _), plural in PLURALS.items()}
    plurals |= {(group, f"{kind.lower()}s") for group, kind in SCHEDULES}
    for part in ("webhook", "operator"):
        assert plurals <= rights(part, "get"), part


VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def test_the_operator_may_do_what_it_does_with_its_own_kinds() -> None:
    deeds = {
        ("runwatch.dev", CAPTURES): {"get", "list", "watch", "delete"},
        ("runwatch.dev", RUNS): {"get", "create", "patch"},
        ("diagon.gke.io", CONNECTIONS): {"get", "list", "watch", "patch", "delete"},
    }
    for (group, plural), verbs in deeds.items():
        may = {verb for verb in VERBS if (group, plural) in rights("operator", verb)}
        assert may == verbs, plural
        assert (group, f"{plural}/status") in rights("operator", "patch")
    [role] = [
        role
        for role in release("default").of("Role")
        if role["metadata"]["labels"]["app.kubernetes.io/component"] == "operator"
    ]
    assert [LEASE] in [rule.get("resourceNames") for rule in role["rules"]]


def rights(part: str, verb: str) -> set[tuple[str, str]]:
    return {
        (group, resource)
        for role in release("default").of("ClusterRole")
        if role["metadata"]["labels"]["app.kubernetes.io/component"] == part
        for rule in role["rules"]
        if verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
