"""The five Kubernetes objects that make an instance, as kubectl takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from runwatch.errors import UsageError

ROLE: Final = "xprofiler-proxy-service"

# Runs in a container that has gcloud: asks the proxy for an endpoint, writes its address to the
# service's annotation, and leaves what the agent beside it needs in a shared folder.
_ENDPOINT: Final = """\
set -e
apt-get update && apt-get install -y kubectl jq
gsutil cp gs://dl-platform-public-configs/proxy-agent-config.json /tmp/proxy.json
proxy=$(jq -r '.["agent-docker-containers"].latest["proxy-urls"]["@REGION@"][0]' /tmp/proxy.json)
metadata=http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default
token=$(curl -sf -H 'Metadata-Flavor: Google' \\
  "$metadata/identity?format=full&audience=$proxy/request-endpoint")
curl -sf -X POST -H "X-Inverting-Proxy-VM-ID: $token" -d '' "$proxy/request-endpoint" \\
  > /config/endpoint.json
jq -r .backendID /config/endpoint.json > /config/backend
echo "$proxy/" > /config/proxy
kubectl annotate --overwrite service @SERVICE@ --namespace @NAMESPACE@ \\
  "proxy-url=https://$(jq -r .hostname /config/endpoint.json)"
"""
_FORWARD: Final = (
    "exec /opt/bin/proxy-forwarding-agent --backend=$(cat /config/backend) "
    "--proxy=$(cat /config/proxy) --host=@SERVICE@.@NAMESPACE@.svc:80 "
    "--shim-websockets=true --shim-path=websocket-shim"
)


@dataclass(frozen=True, slots=True)
class Parameters:
    name: str
    log_directory: str
    zone: str
    namespace: str = "xprofiler"
    service_account: str = "xprofiler"
    pod_port: int = 9001
    agent_port: int = 8083
    tensorboard_image: str = (
        "us-central1-docker.pkg.dev/deeplearning-images/reproducibility/xprofiler:tb-plugin-2.21.1"
    )
    proxy_image: str = "gcr.io/inverting-proxy/agent:latest"
    endpoint_image: str = "google/cloud-sdk:slim"
    cpu_limit: str = "1000m"
    max_replicas: int = 36
    cpu_percent: int = 60

    @classmethod
    def from_flags(
        cls, flags: Mapping[str, str], *, name: str, log_directory: str, zone: str
    ) -> Parameters:
        """From flags that set these fields, and are not kubectl's."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            if field.name in flags and field.name not in ("name", "log_directory", "zone"):
                text = flags[field.name]
                if field.type == "int" and not text.isdigit():
                    raise UsageError(f"--{field.name.replace('_', '-')}={text!r} is not a number")
                values[field.name] = int(text) if field.type == "int" else text
        return cls(name=name, log_directory=log_directory, zone=zone, **values)

    @property
    def service(self) -> str:
        return f"{self.name}-tb-service"

    @property
    def agent_service(self) -> str:
        return f"{self.name}-agent-service"


def manifests(parameters: Parameters) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            _viewer(parameters),
            _service(
                parameters, parameters.service, [{"port": 80, "targetPort": parameters.pod_port}]
            ),
            _agent_service(parameters),
            _proxy(parameters),
            _scaler(parameters),
        ],
    }


def _about(parameters: Parameters, name: str, **labels: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": parameters.namespace,
        "labels": {"instance": parameters.name, **labels},
    }


def _deployment(parameters: Parameters, name: str, pod: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name, "instance": parameters.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _about(parameters, name),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": parameters.service_account, **pod},
            },
        },
    }


def _viewer(parameters: Parameters) -> dict[str, Any]:
    container = {
        "name": "tensorboard",
        "image": parameters.tensorboard_image,
        "command": ["tensorboard"],
        "args": ["--logdir", parameters.log_directory, "--bind_all",
                 f"--port={parameters.pod_port}", "--verbosity=0"],
        "ports": [{"containerPort": parameters.pod_port}],
        "resources": {"limits": {"cpu": parameters.cpu_limit}},
    }  # fmt: skip
    return _deployment(parameters, f"{parameters.name}-tb", {"containers": [container]})


def _service(parameters: Parameters, name: str, ports: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _about(parameters, name),
        "spec": {"selector": {"app": f"{parameters.name}-tb"}, "ports": ports},
    }


def _agent_service(parameters: Parameters) -> dict[str, Any]:
    """What `list` reads."""
    metadata = _about(parameters, parameters.agent_service, role=ROLE, zone=parameters.zone)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata | {"annotations": {"log-directory": parameters.log_directory}},
        "spec": {
            "clusterIP": "None",
            "selector": {"app": f"{parameters.name}-proxy"},
            "ports": [{"port": parameters.agent_port}],
        },
    }


def _proxy(parameters: Parameters) -> dict[str, Any]:
    def filled(text: str, service: str) -> str:
        values = {"REGION": parameters.zone.rpartition("-")[0], "NAMESPACE": parameters.namespace,
                "SERVICE": service}  # fmt: skip
        for key, value in values.items():
            text = text.replace(f"@{key}@", value)
        return text

    shared = [{"name": "config", "mountPath": "/config"}]
    pod = {
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "volumes": [{"name": "config", "emptyDir": {}}],
        "initContainers": [
            {"name": "endpoint", "image": parameters.endpoint_image, "volumeMounts": shared,
             "command": ["bash", "-c", filled(_ENDPOINT, parameters.agent_service)]}
        ],
        "containers": [
            {"name": "proxy", "image": parameters.proxy_image, "volumeMounts": shared,
             "command": ["sh", "-c", filled(_FORWARD, parameters.service)]}
        ],
    }  # fmt: skip
    return _deployment(parameters, f"{parameters.name}-proxy", pod)


def _scaler(parameters: Parameters) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": parameters.cpu_percent}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": _about(parameters, f"{parameters.name}-tb"),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1", "kind": "Deployment", "name": f"{parameters.name}-tb",
            },
            "minReplicas": 1,
            "maxReplicas": parameters.max_replicas,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }  # fmt: skip
