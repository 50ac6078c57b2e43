"""Which kinds are served: those of a cluster from the start, and those that definitions add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

Thing = dict[str, Any]

VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True)
class Kind:
    """One kind in one version."""

    group: str
    """"" for the core's own."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ("status",)
    singular: str = ""
    categories: tuple[str, ...] = ()
    columns: tuple[Thing, ...] = field(default=(), hash=False)
    """A definition's additionalPrinterColumns."""
    schema: Thing | None = field(default=None, hash=False)
    """A definition's schema; None: objects are taken as they come."""
    custom: bool = False
    list_kind: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """As messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def key(self) -> tuple[str, str]:
        """Where its objects are kept.  Events are the same in both of their groups."""
        if self.group == "events.k8s.io":
            return "", "events"
        return self.group, self.plural

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def list_name(self) -> str:
        return self.list_kind or f"{self.kind}List"


# apiVersion, kind, plural, N(amespaced) or C(luster), short names, subresources, categories
_TABLE: Final = """
v1 Pod pods N po status,eviction,binding,portforward all
v1 Namespace namespaces C ns status -
v1 Node nodes C no status -
v1 Event events N ev - -
v1 Secret secrets N - - -
v1 ConfigMap configmaps N cm - -
v1 Service services N svc status all
v1 ServiceAccount serviceaccounts N sa token -
v1 Endpoints endpoints N ep - -
v1 PersistentVolume persistentvolumes C pv status -
v1 PersistentVolumeClaim persistentvolumeclaims N pvc status -
v1 ResourceQuota resourcequotas N quota status -
v1 LimitRange limitranges N limits - -
v1 PodTemplate podtemplates N - - -
v1 ReplicationController replicationcontrollers N rc status,scale all
events.k8s.io/v1 Event events N ev - -
apps/v1 Deployment deployments N deploy status,scale all
apps/v1 ReplicaSet replicasets N rs status,scale all
apps/v1 StatefulSet statefulsets N sts status,scale all
apps/v1 DaemonSet daemonsets N ds status all
apps/v1 ControllerRevision controllerrevisions N - - -
batch/v1 Job jobs N - status all
batch/v1 CronJob cronjobs N cj status all
coordination.k8s.io/v1 Lease leases N - - -
discovery.k8s.io/v1 EndpointSlice endpointslices N - - -
policy/v1 PodDisruptionBudget poddisruptionbudgets N pdb status -
networking.k8s.io/v1 NetworkPolicy networkpolicies N netpol - -
networking.k8s.io/v1 Ingress ingresses N ing status -
autoscaling/v2 HorizontalPodAutoscaler horizontalpodautoscalers N hpa status all
scheduling.k8s.io/v1 PriorityClass priorityclasses C pc - -
storage.k8s.io/v1 StorageClass storageclasses C sc - -
rbac.authorization.k8s.io/v1 Role roles N - - -
rbac.authorization.k8s.io/v1 RoleBinding rolebindings N - - -
rbac.authorization.k8s.io/v1 ClusterRole clusterroles C - - -
rbac.authorization.k8s.io/v1 ClusterRoleBinding clusterrolebindings C - - -
admissionregistration.k8s.io/v1 MutatingWebhookConfiguration \
    mutatingwebhookconfigurations C - - -
admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration \
    validatingwebhookconfigurations C - - -
apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions C crd,crds status -
"""

# Other people's definitions, which a cluster may or may not have: their objects are taken as they
# come.
_OPEN: Final = """
jobset.x-k8s.io/v1alpha2 JobSet jobsets N - status -
leaderworkerset.x-k8s.io/v1 LeaderWorkerSet leaderworkersets N lws status -
ray.io/v1 RayJob rayjobs N - status -
ray.io/v1 RayCluster rayclusters N - status -
ray.io/v1 RayService rayservices N - status -
kubeflow.org/v1 PyTorchJob pytorchjobs N - status -
kubeflow.org/v1 TFJob tfjobs N - status -
kubeflow.org/v1 JAXJob jaxjobs N - status -
kubeflow.org/v1 XGBoostJob xgboostjobs N - status -
kubeflow.org/v1 PaddleJob paddlejobs N - status -
kubeflow.org/v2beta1 MPIJob mpijobs N - status -
trainer.kubeflow.org/v1alpha1 TrainJob trainjobs N - status -
trainer.kubeflow.org/v1alpha1 TrainingRuntime trainingruntimes N - - -
trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime clustertrainingruntimes C - - -
monitoring.coreos.com/v1 ServiceMonitor servicemonitors N smon - -
monitoring.coreos.com/v1 PodMonitor podmonitors N pmon - -
cert-manager.io/v1 Certificate certificates N cert,certs status -
cert-manager.io/v1 Issuer issuers N - status -
cert-manager.io/v1 ClusterIssuer clusterissuers C - status -
gateway.networking.k8s.io/v1 Gateway gateways N gtw status -
gateway.networking.k8s.io/v1 HTTPRoute httproutes N - status -
"""


def _rows(table: str, *, custom: bool) -> Iterator[Kind]:
    def words(column: str) -> tuple[str, ...]:
        return () if column == "-" else tuple(column.split(","))

    for row in table.strip().splitlines():
        api_version, kind, plural, scope, short, sub, categories = row.split()
        group, _, version = api_version.rpartition("/")
        yield Kind(
            group,
            version,
            kind,
            plural,
            scope == "N",
            words(short),
            words(sub),
            kind.lower(),
            words(categories),
            custom=custom,
        )


class Kinds:
    """The kinds that are served now."""

    def __init__(self) -> None:
        served = [*_rows(_TABLE, custom=False), *_rows(_OPEN, custom=True)]
        self._served = {(kind.group, kind.version, kind.plural): kind for kind in served}

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._served.values()))

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        return self._served.get((group, version, plural))

    def of(self, thing: Thing) -> Kind:
        """The kind that an object says it is."""
        for kind in self:
            if (kind.api_version, kind.kind) == (thing.get("apiVersion"), thing.get("kind")):
                return kind
        raise LookupError(f"{thing.get('apiVersion')} {thing.get('kind')} is not served here")

    def named(self, name: str) -> Kind:
        """By kind, `Kind.group`, plural or short name; the first there is."""
        wanted, _, group = name.partition(".")
        for kind in self:
            if group and kind.group != group:
                continue
            if wanted in (kind.kind, kind.plural, kind.singular, *kind.short):
                return kind
        raise LookupError(f"no kind {name} is served here")

    def define(self, definition: Thing) -> None:
        """Serve what a definition names, in place of what was served before."""
        self.forget(definition)
        spec = definition["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if not version.get("served"):
                continue
            kind = Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                spec["scope"] == "Namespaced",
                tuple(names.get("shortNames", ())),
                tuple(version.get("subresources", {})),
                names.get("singular") or names["kind"].lower(),
                tuple(names.get("categories", ())),
                tuple(version.get("additionalPrinterColumns", ())),
                version.get("schema", {}).get("openAPIV3Schema"),
                custom=True,
                list_kind=names.get("listKind", ""),
            )
            self._served[kind.group, kind.version, kind.plural] = kind

    def forget(self, definition: Thing) -> None:
        spec = definition["spec"]
        for kind in self:
            if (kind.group, kind.plural) == (spec["group"], spec["names"]["plural"]):
                del self._served[kind.group, kind.version, kind.plural]
