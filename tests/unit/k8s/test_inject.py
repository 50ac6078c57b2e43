"""What a watched pod gets: modes, `exec`, and what stays as it was."""

from __future__ import annotations

from typing import Any

import pytest

from runwatch.k8s.inject import Injection
from runwatch.k8s.settings import WebhookSettings
from tests.cluster import objects
from tests.cluster.podsecurity import violations
from tests.unit.k8s.admitted import (
    HEAD,
    IMAGE,
    KUBERNETES,
    SETTINGS,
    injected,
    is_valid,
    noted,
    variables,
)

Thing = dict[str, Any]
USER: Thing = {"runAsUser": 1000}


def spec_of(injection: Injection) -> Thing:
    spec: Thing = injection.pod["spec"]
    return spec


def test_a_sidecar_ships_what_the_pod_records() -> None:
    pod = noted(objects.pod_spec(securityContext=USER, restartPolicy="Never"), mode="sidecar")
    done = injected(pod)
    spec = spec_of(done)
    assert spec["volumes"] == [
        {"name": "runwatch-records", "emptyDir": {}},
        {"name": "runwatch-tmp", "emptyDir": {}},
    ]
    assert spec["initContainers"] == [
        {
            "name": "runwatch-agent",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "restartPolicy": "Always",
            "command": ["runwatch", "agent", "--idle", "0"],
            "env": [
                {"name": "RUNWATCH_DIR", "value": "/var/lib/runwatch"},
                {"name": "RUNWATCH_NODE_BYTES", "value": "1GiB"},
                {"name": "RUNWATCH_LAST_SECONDS", "value": "20"},
                {"name": "RUNWATCH_HEAD", "value": HEAD},
                {
                    "name": "RUNWATCH_TOKEN",
                    "valueFrom": {
                        "secretKeyRef": {
                            "name": "runwatch-ingest",
                            "key": "token",
                            "optional": True,
                        }
                    },
                },
            ],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [
                {"name": "runwatch-records", "mountPath": "/var/lib/runwatch"},
                {"name": "runwatch-tmp", "mountPath": "/tmp"},
            ],
            "resources": {
                "requests": {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "256Mi"},
                "limits": {"cpu": "100m", "memory": "256Mi"},
            },
        }
    ]
    (trainer,) = spec["containers"]
    assert trainer["volumeMounts"] == [
        {"name": "runwatch-records", "mountPath": "/var/lib/runwatch"}
    ]
    assert variables(trainer).items() >= {
        ("RUNWATCH_AGENT", "off"),
        ("RUNWATCH_DIR", "/var/lib/runwatch"),
        ("RUNWATCH_JOURNAL_BYTES", str(256 << 20)),
    }
    assert (done.pod["metadata"]["annotations"]["runwatch.dev/injected"], done.warnings) == (
        "v1 sidecar",
        [],
    )
    is_valid(done.pod, *KUBERNETES)


def test_a_pod_that_only_wants_its_name_gets_no_volume() -> None:
    done = injected(noted(mode="none"))
    spec = spec_of(done)
    assert "volumes" not in spec and "initContainers" not in spec
    (trainer,) = spec["containers"]
    assert "volumeMounts" not in trainer
    assert sorted(variables(trainer)) == [
        "GKE_DIAGON_IDENTIFIER",
        "GKE_DIAGON_METADATA",
        "RUNWATCH_CONTAINER",
        "RUNWATCH_WORKLOAD",
    ]
    is_valid(done.pod)


@pytest.mark.parametrize("level", ["restricted", "baseline"])
def test_where_the_nodes_folders_are_forbidden_the_agent_is_in_the_pod(level: str) -> None:
    namespace = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}}
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    security: Thing = {"runAsUser": 1000, "runAsNonRoot": True}
    security |= {"seccompProfile": {"type": "RuntimeDefault"}}
    spec = objects.pod_spec(
        objects.container(securityContext=strict), restartPolicy="Never", securityContext=security
    )
    done = injected(noted(spec, exec="true"), namespace=namespace)
    assert done.pod["metadata"]["annotations"]["runwatch.dev/injected"] == "v1 sidecar exec"
    assert [level in each and "runwatch.dev/mode=sidecar" in each for each in done.warnings] == [
        True
    ]
    assert violations(level, done.pod) == []
    asked = injected(noted(spec, mode="sidecar", exec="true"), namespace=namespace)
    assert (asked.pod["spec"], asked.warnings) == (done.pod["spec"], [])


def test_a_privileged_namespace_is_no_reason_for_a_sidecar() -> None:
    namespace = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    done = injected(noted(), namespace=namespace)
    assert done.pod["metadata"]["annotations"]["runwatch.dev/injected"] == "v1 node"
    assert done.warnings == []


def test_an_old_cluster_has_no_sidecars() -> None:
    """There, an agent among the init containers would keep the pod from ever starting."""
    done = injected(noted(mode="sidecar"), has_sidecars=False)
    assert "initContainers" not in spec_of(done)
    assert [each for each in done.warnings if "1.29" in each] == list(done.warnings) != []


def test_without_an_image_of_ours_there_is_neither_agent_nor_exec() -> None:
    bare = WebhookSettings(head=HEAD)
    done = injected(noted(mode="sidecar", exec="true"), settings=bare)
    assert "initContainers" not in spec_of(done)
    assert spec_of(done)["containers"][0]["command"] == ["python", "train.py"]
    assert ["RUNWATCH_WEBHOOK_IMAGE" in each for each in done.warnings] == [True, True]


def test_a_mode_that_is_none_is_said() -> None:
    done = injected(noted(mode="daemon"))
    assert done.pod["metadata"]["annotations"]["runwatch.dev/injected"] == "v1 node"
    (warning,) = done.warnings
    assert "'daemon'" in warning and "node, sidecar, none" in warning


def test_what_a_container_says_itself_stays() -> None:
    theirs = {"RUNWATCH_HEAD": "http://mine:1", "POD_NAME": "x", "GKE_DIAGON_IDENTIFIER": "{}"}
    done = injected(noted(objects.pod_spec(objects.container(env=theirs))))
    (trainer,) = spec_of(done)["containers"]
    assert variables(trainer).items() >= theirs.items()
    names = [each["name"] for each in trainer["env"]]
    assert sorted(set(names)) == sorted(names)


def test_a_container_that_records_elsewhere_is_left_alone() -> None:
    spec = objects.pod_spec(
        objects.container("own", env={"RUNWATCH_DIR": "/mine"}), objects.container("ours")
    )
    own, ours = spec_of(injected(noted(spec)))["containers"]
    assert "volumeMounts" not in own and variables(own)["RUNWATCH_DIR"] == "/mine"
    assert "RUNWATCH_AGENT" not in variables(own)
    assert ours["volumeMounts"] == [{"name": "runwatch-records", "mountPath": "/var/lib/runwatch"}]


def test_a_volume_of_our_name_that_is_none_of_ours_stays() -> None:
    theirs = {"name": "runwatch-records", "configMap": {"name": "x"}}
    done = injected(noted(objects.pod_spec(volumes=[theirs])))
    assert spec_of(done)["volumes"] == [
        theirs,
        {
            "name": "runwatch-records-2",
            "hostPath": {"path": "/var/lib/runwatch", "type": "DirectoryOrCreate"},
        },
    ]
    assert spec_of(done)["containers"][0]["volumeMounts"][0]["name"] == "runwatch-records-2"


def test_what_is_mounted_at_our_place_is_used() -> None:
    """A claim that outlives the node, say: all containers record into it."""
    claim = {"name": "records", "persistentVolumeClaim": {"claimName": "c"}}
    mounted = [{"name": "records", "mountPath": "/var/lib/runwatch/"}]
    spec = objects.pod_spec(
        objects.container("a", volumeMounts=mounted), objects.container("b"), volumes=[claim]
    )
    done = injected(noted(spec))
    assert spec_of(done)["volumes"] == [claim]
    first, second = spec_of(done)["containers"]
    assert first["volumeMounts"] == mounted
    assert second["volumeMounts"] == [{"name": "records", "mountPath": "/var/lib/runwatch"}]


def test_of_several_users_the_agent_is_one_and_that_is_said() -> None:
    spec = objects.pod_spec(
        objects.container("a", securityContext={"runAsUser": 7}),
        objects.container("b", securityContext={"runAsUser": 8}),
    )
    done = injected(noted(spec, mode="sidecar"))
    assert spec_of(done)["initContainers"][0]["securityContext"]["runAsUser"] == 7
    (warning,) = done.warnings
    assert "7, 8" in warning


def test_a_program_that_runs_as_root_has_an_agent_that_does() -> None:
    """A journal can be read only by its own user."""
    done = injected(noted(objects.pod_spec(securityContext={"runAsUser": 0}), mode="sidecar"))
    security = spec_of(done)["initContainers"][0]["securityContext"]
    assert (security.get("runAsUser", 0), security["runAsNonRoot"]) == (0, False)
    assert done.warnings == []


def test_an_annotation_says_the_user_that_the_pod_does_not() -> None:
    silent = injected(noted(mode="sidecar"))
    assert "runAsUser" not in spec_of(silent)["initContainers"][0]["securityContext"]
    (warning,) = silent.warnings
    assert "runwatch.dev/user" in warning
    said = injected(noted(mode="sidecar", user="1234"))
    assert spec_of(said)["initContainers"][0]["securityContext"]["runAsUser"] == 1234
    assert said.warnings == []


def test_a_pod_with_resources_as_a_whole_keeps_them() -> None:
    whole = {"limits": {"cpu": "4", "memory": "8Gi"}}
    spec = objects.pod_spec(resources=whole, securityContext=USER)
    agent, files = spec_of(injected(noted(spec, mode="sidecar", exec="true")))["initContainers"]
    assert "resources" not in agent and "resources" not in files


def test_secrets_for_our_image_are_added_where_our_image_is() -> None:
    settings = WebhookSettings(head=HEAD, image=IMAGE, pull_secrets="theirs, ours")
    spec = objects.pod_spec(imagePullSecrets=[{"name": "theirs"}], securityContext=USER)
    done = injected(noted(spec, mode="sidecar"), settings=settings)
    assert spec_of(done)["imagePullSecrets"] == [{"name": "theirs"}, {"name": "ours"}]
    plain = injected(noted(spec), settings=settings)
    assert spec_of(plain)["imagePullSecrets"] == [{"name": "theirs"}]


def test_a_sidecar_checks_the_head_with_the_authority_of_its_secret() -> None:
    settings = WebhookSettings(head="https://head", image=IMAGE, ca=True)
    spec = spec_of(
        injected(noted(objects.pod_spec(securityContext=USER), mode="sidecar"), settings=settings)
    )
    (agent,) = spec["initContainers"]
    assert {"name": "RUNWATCH_CA", "value": "/etc/runwatch/ca/ca.crt"} in agent["env"]
    assert {"name": "runwatch-ca", "mountPath": "/etc/runwatch/ca", "readOnly": True} in agent[
        "volumeMounts"
    ]
    assert {
        "name": "runwatch-ca",
        "secret": {
            "secretName": "runwatch-ingest",
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
            "optional": True,
        },
    } in spec["volumes"]


def test_names_of_people_are_no_references_to_variables() -> None:
    """The kubelet would put in what $(HOME) is."""
    done = injected(noted(name="$(HOME) for $5", group='say "hi"\n'))
    told = variables(spec_of(done)["containers"][0])
    assert told["RUNWATCH_NAME"] == "$$(HOME) for $$5"
    assert told["RUNWATCH_GROUP"] == 'say "hi"'


def test_our_files_come_before_the_program() -> None:
    done = injected(noted(exec="true"))
    spec = spec_of(done)
    (files,) = spec["initContainers"]
    assert files["name"] == "runwatch-files"
    assert files["command"] == ["runwatch", "k8s", "files", "--lenient", "/var/lib/runwatch-files"]
    (trainer,) = spec["containers"]
    place = "/var/lib/runwatch-files/runwatch"
    assert trainer["command"] == [
        "/bin/sh",
        "-c",
        f'PYTHONPATH="{place}/sdk/boot:{place}/dropin${{PYTHONPATH:+:$PYTHONPATH}}"; '
        'export PYTHONPATH; exec "$@"',
        "runwatch",
        "python",
        "train.py",
    ]
    assert {"name": "runwatch-files", "mountPath": "/var/lib/runwatch-files", "readOnly": True} in (
        trainer["volumeMounts"]
    )
    assert variables(trainer)["RUNWATCH_AUTO"] == "1"
    assert done.pod["metadata"]["annotations"]["runwatch.dev/injected"] == "v1 node exec"
    assert done.warnings == []
    is_valid(done.pod, *KUBERNETES)


def test_init_containers_of_the_pod_come_first() -> None:
    """A native sidecar of theirs, a network's, may be what ours need."""
    theirs = {"name": "net", "image": "net:1", "restartPolicy": "Always"}
    spec = objects.pod_spec(initContainers=[theirs], securityContext=USER)
    inits = spec_of(injected(noted(spec, mode="sidecar", exec="true")))["initContainers"]
    assert [each["name"] for each in inits] == ["net", "runwatch-agent", "runwatch-files"]
    assert inits[0] == theirs


def test_with_several_containers_the_default_one_is_begun() -> None:
    spec = objects.pod_spec(objects.container("proxy"), objects.container("main"))
    pod = noted(spec, exec="true")
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = "main"
    proxy, main = spec_of(injected(pod))["containers"]
    assert proxy["command"] == ["python", "train.py"]
    assert main["command"][:2] == ["/bin/sh", "-c"]


def test_named_containers_are_begun_and_unknown_names_are_said() -> None:
    spec = objects.pod_spec(objects.container("a"), objects.container("b"))
    done = injected(noted(spec, exec="true", containers="b, c"))
    a, b = spec_of(done)["containers"]
    assert (a["command"][0], b["command"][0]) == ("python", "/bin/sh")
    (warning,) = done.warnings
    assert "'c'" in warning and "a, b" in warning


def test_settings_may_make_sidecars_the_rule() -> None:
    settings = WebhookSettings(head=HEAD, image=IMAGE, mode="sidecar")
    pod = noted(objects.pod_spec(securityContext=USER))
    assert spec_of(injected(pod, settings=settings))["initContainers"][0]["name"] == (
        "runwatch-agent"
    )
    node = noted(objects.pod_spec(securityContext=USER), mode="node")
    assert "initContainers" not in spec_of(injected(node, settings=settings))


def test_without_a_head_records_wait_on_the_node() -> None:
    done = injected(noted(), settings=WebhookSettings())
    assert "RUNWATCH_HEAD" not in variables(spec_of(done)["containers"][0])
    assert SETTINGS.head == HEAD
