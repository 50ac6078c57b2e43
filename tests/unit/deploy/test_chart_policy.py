"""What the chart asks of a cluster: pods that may do little, rights that reach no further."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.deploy.releases import PART, SETS, Release, Run, Thing, release, with_values
from tests.unit.deploy.restricted import breaches

EVERY_SET = pytest.mark.parametrize("name", SETS)
# What values.yaml and SECURITY.md say that the agent needs, and nothing else.
AGENT = {
    "hostPID",
    "hostPath /var/lib/runwatch",
    "directories: runAsUser 0",
    "directories: not runAsNonRoot",
    "agent: runAsUser 0",
    "agent: not runAsNonRoot",
    "agent: adds SETUID",
    "agent: adds SETGID",
    "agent: adds SYS_PTRACE",
}
SYSTEM = ("kube-system", "kube-public", "kube-node-lease")


def test_each_breach_of_the_profile_is_seen() -> None:
    """Or the tests below could not fail."""
    head = release("default").run("head")
    assert breaches(head.meta, head.spec) == set()
    for path, value, said in (
        (("hostNetwork",), True, "hostNetwork"),
        (("hostIPC",), True, "hostIPC"),
        (("securityContext", "runAsUser"), 0, "runAsUser 0"),
        (("securityContext", "runAsNonRoot"), False, "head: not runAsNonRoot"),
        (("securityContext", "seccompProfile"), None, "head: no seccomp profile"),
        (("securityContext", "seccompProfile", "type"), "Unconfined", "seccomp Unconfined"),
        (("securityContext", "sysctls"), [{"name": "kernel.msgmax"}], "sysctl kernel.msgmax"),
        (("securityContext", "seLinuxOptions"), {"role": "x"}, "SELinux"),
        (("securityContext", "appArmorProfile"), {"type": "Unconfined"}, "AppArmor Unconfined"),
        (("securityContext", "windowsOptions"), {"hostProcess": True}, "hostProcess"),
        (("volumes",), [{"name": "a", "nfs": {"path": "/a"}}], "nfs /a"),
        (("containers", 0, "securityContext", "privileged"), True, "head: privileged"),
        (("containers", 0, "securityContext", "procMount"), "Unmasked", "head: procMount"),
        (("containers", 0, "securityContext", "runAsUser"), 0, "head: runAsUser 0"),
        (("containers", 0, "securityContext", "capabilities"), {}, "head: keeps capabilities"),
        (
            ("containers", 0, "securityContext", "allowPrivilegeEscalation"),
            True,
            "head: allowPrivilegeEscalation",
        ),
        (("containers", 0, "ports", 0, "hostPort"), 80, "head: hostPort"),
        (("containers", 0, "livenessProbe", "httpGet", "host"), "a",
         "head: a probe of another host"),
    ):  # fmt: skip
        spoilt: Any = copy.deepcopy(head.spec)
        place = spoilt
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        assert breaches(head.meta, spoilt) == {said}
    key = "container.apparmor.security.beta.kubernetes.io/head"
    annotated = head.meta | {"annotations": {key: "unconfined"}}
    assert breaches(annotated, head.spec) == {"AppArmor unconfined"}


@EVERY_SET
def test_every_pod_but_the_agent_is_restricted(name: str) -> None:
    for run in release(name).runs():
        if run.part != "agent":
            assert breaches(run.meta, run.spec) == set(), run.part


def test_the_agent_breaks_what_is_stated_and_no_more() -> None:
    agent = release("default").run("agent")
    assert breaches(agent.meta, agent.spec) == AGENT
    agent = release("records-only").run("agent")
    assert breaches(agent.meta, agent.spec) == AGENT - {"hostPID"}


def test_a_cluster_that_admits_only_restricted_pods_has_no_agent() -> None:
    parts = {run.part for run in release("restricted").runs()}
    assert parts == {"head", "webhook", "operator", "test"}


# ── containers ────────────────────────────────────────────────────────────────────────────────


@EVERY_SET
def test_images_have_a_tag_or_a_digest_and_never_latest(name: str) -> None:
    images = [c["image"] for run in release(name).runs() for c in run.containers()]
    assert images
    for image in images:
        _, _, said = image.rpartition("/")
        assert re.fullmatch(r"[a-z0-9.-]+(@sha256:[0-9a-f]{64}|:[\w.-]+)", said), image
        assert not said.endswith(":latest")


@EVERY_SET
def test_containers_have_bounds_and_a_root_that_is_read_only(name: str) -> None:
    for run in release(name).runs():
        for container in run.containers():
            resources = container["resources"]
            assert {"cpu", "memory"} <= resources["requests"].keys(), container["name"]
            assert "memory" in resources["limits"], container["name"]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


@EVERY_SET
def test_what_serves_is_probed_at_a_port_that_it_has(name: str) -> None:
    for run in release(name).runs():
        for container in run.spec["containers"]:
            ports = {port["name"] for port in container.get("ports", ())}
            assert bool(ports) == ("readinessProbe" in container) == ("livenessProbe" in container)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if probe in container:
                    assert container[probe]["httpGet"]["port"] in ports


@EVERY_SET
def test_pods_mount_what_they_have_and_have_what_they_mount(name: str) -> None:
    for run in release(name).runs():
        volumes = [volume["name"] for volume in run.spec["volumes"]]
        if run.owner["kind"] == "StatefulSet":
            claims = run.owner["spec"].get("volumeClaimTemplates", ())
            volumes += [claim["metadata"]["name"] for claim in claims]
        assert len(volumes) == len(set(volumes))
        mounted = {m["name"] for c in run.containers() for m in c["volumeMounts"]}
        assert mounted == set(volumes), run.part
        for container in run.containers():
            places = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert len(places) == len(set(places))


@EVERY_SET
def test_only_what_asks_the_api_server_has_an_account_token(name: str) -> None:
    rights = {
        (subject["namespace"], subject["name"])
        for binding in release(name).of("RoleBinding", "ClusterRoleBinding")
        for subject in binding["subjects"]
    }
    for run in release(name).runs():
        account = ("runwatch", run.spec.get("serviceAccountName", "default"))
        assert run.spec["automountServiceAccountToken"] is (account in rights), run.part
    for made in release(name).of("ServiceAccount"):
        assert made["automountServiceAccountToken"] is False


# ── rights ────────────────────────────────────────────────────────────────────────────────────


INTO_PODS = {
    "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/ephemeralcontainers",
    "nodes/proxy", "services/proxy", "serviceaccounts/token",
}  # fmt: skip


def _rules(of: Release) -> Iterator[tuple[Thing, Thing]]:
    for role in of.of("Role", "ClusterRole"):
        for rule in role["rules"]:
            yield role, rule


@EVERY_SET
def test_no_rule_is_wider_than_its_purpose(name: str) -> None:
    for role, rule in _rules(release(name)):
        said = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not any("*" in word for word in said), rule
        assert "nonResourceURLs" not in rule
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
        assert not INTO_PODS & set(rule["resources"])
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
        if "secrets" in rule["resources"]:
            assert role["kind"] == "Role" and role["metadata"]["namespace"] == "runwatch"
            assert rule["resourceNames"] and set(rule["verbs"]) <= {"get", "patch"}
        if "" in rule["apiGroups"] and {"pods", "nodes", "namespaces"} & set(rule["resources"]):
            assert set(rule["verbs"]) <= {"get", "list", "watch"}


OWN_GROUPS = {"runwatch.dev", "diagon.gke.io"}


@EVERY_SET
def test_what_is_written_is_our_own(name: str) -> None:
    """Objects of users, and those of the cluster, are only read."""
    writes = {"create", "update", "patch", "delete"}
    for _, rule in _rules(release(name)):
        if not writes & set(rule["verbs"]) or set(rule["apiGroups"]) <= OWN_GROUPS:
            continue
        assert rule["resources"] in (["events"], ["leases"]) or rule.get("resourceNames"), rule
        if rule["resources"] == ["events"]:
            assert not {"update", "delete"} & set(rule["verbs"])


@EVERY_SET
def test_every_binding_gives_a_role_that_is_there_to_an_account_that_is_there(name: str) -> None:
    of = release(name)
    roles = {
        (role["kind"], role["metadata"].get("namespace"), role["metadata"]["name"])
        for role in of.of("Role", "ClusterRole")
    }
    accounts = {account["metadata"]["name"] for account in of.of("ServiceAccount")}
    bound = set()
    for binding in of.of("RoleBinding", "ClusterRoleBinding"):
        where = binding["metadata"].get("namespace")
        bound.add((binding["roleRef"]["kind"], where, binding["roleRef"]["name"]))
        assert {subject["name"] for subject in binding["subjects"]} <= accounts
    assert bound == roles


def _allowed(of: Release, part: str, verb: str, group: str, resource: str, wide: bool) -> bool:
    kind = "ClusterRole" if wide else "Role"
    return any(
        verb in rule["verbs"] and group in rule["apiGroups"] and resource in rule["resources"]
        for role, rule in _rules(of)
        if role["kind"] == kind and role["metadata"]["labels"][PART] == part
    )


def test_an_operator_of_some_namespaces_has_rights_only_there() -> None:
    of = release("own-secrets")
    spaces = {role["metadata"]["namespace"] for role in of.of("Role")}
    assert {"research", "production"} <= spaces
    for group, resource in (("", "pods"), ("", "events"), ("runwatch.dev", "captures")):
        assert not _allowed(of, "operator", "list", group, resource, wide=True)
        assert _allowed(of, "operator", "list", group, resource, wide=False)
        assert _allowed(release("default"), "operator", "list", group, resource, wide=True)
    assert _allowed(of, "operator", "list", "", "nodes", wide=True)


def test_an_operator_of_its_own_namespace_has_one_role_there() -> None:
    of = with_values(operator={"namespaces": ["runwatch"]}, webhook={"enabled": False})
    [role] = of.of("Role")
    resources = {resource for rule in role["rules"] for resource in rule["resources"]}
    assert {"leases", "pods", "captures"} <= resources


# ── who finds whom ────────────────────────────────────────────────────────────────────────────


def _selects(selector: dict[str, str], run: Run) -> bool:
    labels: dict[str, str] = run.meta["labels"]
    return selector.items() <= labels.items()


def _ports(run: Run) -> dict[str, int]:
    return {p["name"]: p["containerPort"] for c in run.containers() for p in c.get("ports", ())}


@EVERY_SET
def test_services_find_one_part_and_ports_that_it_has(name: str) -> None:
    of = release(name)
    for service in of.of("Service"):
        [run] = [run for run in of.runs() if _selects(service["spec"]["selector"], run)]
        targets = {port["targetPort"] for port in service["spec"]["ports"]}
        assert targets == set(_ports(run))


@EVERY_SET
def test_network_policies_find_one_part_and_let_all_its_ports_be_reached(name: str) -> None:
    of = release(name)
    guarded = set()
    for policy in of.of("NetworkPolicy"):
        selector = policy["spec"]["podSelector"]["matchLabels"]
        [run] = [run for run in of.runs() if _selects(selector, run)]
        guarded.add(run.part)
        opened = {p["port"] for rule in policy["spec"].get("ingress", ()) for p in rule["ports"]}
        assert opened == set(_ports(run).values())
        assert "Ingress" in policy["spec"]["policyTypes"]
    assert guarded == {run.part for run in of.runs()} - {"test"}


def test_whom_the_head_knows_still_reaches_it_when_others_may_not() -> None:
    [policy] = [
        p for p in release("everything").of("NetworkPolicy") if "head" in p["metadata"]["name"]
    ]
    [rule] = policy["spec"]["ingress"]
    senders = [peer["podSelector"]["matchLabels"] for peer in rule["from"] if "podSelector" in peer]
    for part in ("agent", "operator", "test"):
        labels = release("everything").run(part).meta["labels"]
        assert any(sender.items() <= labels.items() for sender in senders), part
    assert {"runwatch.dev/watched": "true"} in senders
    assert {"ipBlock": {"cidr": "10.0.0.0/8"}} in rule["from"]


@EVERY_SET
def test_monitors_find_ports_and_budgets_leave_a_replica(name: str) -> None:
    of = release(name)
    for monitor in of.of("ServiceMonitor"):
        chosen = monitor["spec"]["selector"]["matchLabels"].items()
        [service] = [s for s in of.of("Service") if chosen <= s["metadata"]["labels"].items()]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {each["port"] for each in monitor["spec"]["endpoints"]} <= ports
    for monitor in of.of("PodMonitor"):
        chosen = monitor["spec"]["selector"]["matchLabels"]
        [run] = [run for run in of.runs() if _selects(chosen, run)]
        assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} <= set(_ports(run))
    for budget in of.of("PodDisruptionBudget"):
        [run] = [r for r in of.runs() if _selects(budget["spec"]["selector"]["matchLabels"], r)]
        assert run.owner["spec"]["replicas"] > budget["spec"]["maxUnavailable"]


def test_everything_has_its_monitors_budgets_and_routes() -> None:
    of = release("everything")
    assert len(of.of("PodMonitor")) == len(of.of("PodDisruptionBudget")) == 2
    assert len(of.of("ServiceMonitor")) == len(of.of("Ingress")) == len(of.of("HTTPRoute")) == 1


def test_one_replica_has_no_budget() -> None:
    assert (
        with_values(webhook={"replicas": 1}, operator={"replicas": 1}).of("PodDisruptionBudget")
        == []
    )


@EVERY_SET
def test_routes_lead_to_the_heads_service(name: str) -> None:
    of = release(name)
    for ingress in of.of("Ingress"):
        [path] = [p for rule in ingress["spec"]["rules"] for p in rule["http"]["paths"]]
        backend = path["backend"]["service"]
        assert _service_has(of, backend["name"], backend["port"]["name"])
        assert path["path"] == "/team/runwatch"
    for route in of.of("HTTPRoute"):
        [rule] = route["spec"]["rules"]
        assert [match["path"]["value"] for match in rule["matches"]] == ["/team/runwatch"]
        [backend] = rule["backendRefs"]
        assert _service_has(of, backend["name"], backend["port"])


def _service_has(of: Release, name: str, port: str | int) -> bool:
    [service] = [s for s in of.of("Service") if s["metadata"]["name"] == name]
    return any(port in (each["name"], each["port"]) for each in service["spec"]["ports"])


# ── the webhook ───────────────────────────────────────────────────────────────────────────────


@EVERY_SET
def test_no_pod_waits_for_the_webhook_or_is_refused_by_it(name: str) -> None:
    of = release(name)
    for configuration in of.of("MutatingWebhookConfiguration"):
        exempt = {*SYSTEM, "runwatch"}
        for entry in configuration["webhooks"]:
            assert entry["failurePolicy"] == "Ignore"
            assert 1 <= entry["timeoutSeconds"] <= 5
            assert entry["sideEffects"] == "None"
            spaces = entry["namespaceSelector"]["matchExpressions"]
            [left] = [e for e in spaces if e["key"] == "kubernetes.io/metadata.name"]
            assert left["operator"] == "NotIn" and exempt <= set(left["values"])
            assert {"runwatch.dev/exempt", "diagon-webhook-exempt"} <= {e["key"] for e in spaces}
            assert any(e["operator"] in ("In", "Exists") for e in _asked(entry)), entry["name"]
            assert entry["rules"] == [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                    "scope": "Namespaced",
                }
            ]
            service = entry["clientConfig"]["service"]
            assert _service_has(of, service["name"], service["port"])


def _asked(entry: Thing) -> list[Thing]:
    return [
        *entry["namespaceSelector"]["matchExpressions"],
        *entry["objectSelector"]["matchExpressions"],
    ]


@EVERY_SET
def test_the_webhook_is_not_asked_about_our_own_pods(name: str) -> None:
    for configuration in release(name).of("MutatingWebhookConfiguration"):
        for entry in configuration["webhooks"]:
            ours = {"key": "app.kubernetes.io/part-of", "operator": "NotIn", "values": ["runwatch"]}
            assert ours in entry["objectSelector"]["matchExpressions"]


def test_every_owner_that_is_known_may_be_read() -> None:
    """What it may not read is named, and its labels are not seen."""
    known = {
        "": ["pods"],
        "apps": ["deployments", "replicasets", "statefulsets"],
        "batch": ["jobs", "cronjobs"],
        "batch.volcano.sh": ["jobs"],
        "jobset.x-k8s.io": ["jobsets"],
        "leaderworkerset.x-k8s.io": ["leaderworkersets"],
        "ray.io": ["rayclusters", "rayjobs", "rayservices", "raycronjobs"],
        "kubeflow.org": ["pytorchjobs", "mpijobs", "tfjobs", "jaxjobs", "scheduledworkflows"],
        "trainer.kubeflow.org": ["trainjobs"],
        "argoproj.io": ["workflows", "cronworkflows"],
    }
    for part in ("webhook", "operator"):
        for group, resources in known.items():
            for resource in resources:
                assert _allowed(release("default"), part, "get", group, resource, wide=True), (
                    resource
                )
    assert _allowed(release("default"), "webhook", "get", "", "namespaces", wide=True)
