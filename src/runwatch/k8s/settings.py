"""The settings of the injection webhook: what watched pods are told, and where it listens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runwatch.address import http_address, split_token
from runwatch.errors import UsageError
from runwatch.settings import setting

MODES: Final = ("node", "sidecar", "none")


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    head: str = setting("", env="RUNWATCH_HEAD", help="the head, as people open it: pods name it")
    mode: str = setting(
        "node",
        env="RUNWATCH_WEBHOOK_MODE",
        help="where agents are, for pods that do not say it: node, sidecar or none",
    )
    directory: str = setting(
        "/var/lib/runwatch",
        env="RUNWATCH_WEBHOOK_DIRECTORY",
        help="where pods record, and the folder of each node that its agent reads",
    )
    image: str = setting(
        "", env="RUNWATCH_WEBHOOK_IMAGE", help="image of the containers that pods get from us"
    )
    pull_policy: str = setting(
        "IfNotPresent", env="RUNWATCH_WEBHOOK_PULL_POLICY", help="when nodes pull that image"
    )
    pull_secrets: str = setting(
        "",
        env="RUNWATCH_WEBHOOK_PULL_SECRETS",
        help="secrets of the pod's namespace for pulling it, with commas",
    )
    token_secret: str = setting(
        "runwatch-ingest",
        env="RUNWATCH_WEBHOOK_TOKEN_SECRET",
        help="secret of the pod's namespace with the token of its sidecar, under the key `token`",
    )
    ca: bool = setting(
        False,
        env="RUNWATCH_WEBHOOK_CA",
        help="that secret has `ca.crt`, too, with which the sidecar checks the head",
    )
    cluster: str = setting(
        "kubernetes",
        env="RUNWATCH_CLUSTER",
        help="the cluster's name, or projects/P/locations/L/clusters/C",
    )
    exempt: str = setting(
        "kube-system,kube-public,kube-node-lease",
        env="RUNWATCH_WEBHOOK_EXEMPT",
        help="namespaces whose pods are never touched, with commas; our own is another",
    )
    bind: str = setting("0.0.0.0", env="RUNWATCH_WEBHOOK_BIND", help="address to listen on")  # noqa: S104
    port: int = setting(8443, env="RUNWATCH_WEBHOOK_PORT", help="port to listen on, with TLS")
    seconds: float = setting(
        3.0,
        env="RUNWATCH_WEBHOOK_SECONDS",
        help="a pod whose owners are not known by then starts as it is; below the 5 s of the API",
    )
    leave_seconds: float = setting(
        5.0,
        env="RUNWATCH_WEBHOOK_LEAVE_SECONDS",
        help="so long it still answers when it was told to end, until nobody asks it any more",
    )
    certificate: Path | None = setting(
        None, env="RUNWATCH_WEBHOOK_CERTIFICATE", help="PEM file, read again when it changes"
    )
    key: Path | None = setting(None, env="RUNWATCH_WEBHOOK_KEY", help="PEM file of its key")
    certificate_secret: str = setting(
        "runwatch-webhook-certificate",
        env="RUNWATCH_WEBHOOK_CERTIFICATE_SECRET",
        help="secret where our own certificate is kept, where no file is named",
    )
    service: str = setting(
        "runwatch-webhook",
        env="RUNWATCH_WEBHOOK_SERVICE",
        help="the service by which the API server calls us: the certificate is for it",
    )
    configuration: str = setting(
        "runwatch-webhook",
        env="RUNWATCH_WEBHOOK_CONFIGURATION",
        help="the MutatingWebhookConfiguration that gets our own certificate's authority",
    )

    def __post_init__(self) -> None:
        address, token = split_token(self.head)
        if token or "@" in address:
            raise UsageError(
                "head has a token or a password in it, which pods would show to everybody; put it "
                f"into the secret {self.token_secret!r}"
            )
        if address:
            http_address(address)
        object.__setattr__(self, "head", address)
        if self.mode not in MODES:
            raise UsageError(f"mode is {self.mode!r}: use {', '.join(MODES)}")
        if not self.directory.startswith("/") or self.directory == "/":
            raise UsageError(f"directory is {self.directory!r}: use a folder's absolute path")
        if not 0 < self.seconds < 5:
            raise UsageError(f"seconds is {self.seconds:g}: must be above 0 and below 5")
        if not 0 <= self.leave_seconds <= 20:
            raise UsageError(
                f"leave_seconds is {self.leave_seconds:g}: 0 to 20; Kubernetes kills after 30"
            )
        if (self.certificate is None) != (self.key is None):
            raise UsageError("a certificate and its key are two files: name both, or neither")

    @property
    def exempt_namespaces(self) -> frozenset[str]:
        return frozenset(words(self.exempt))


def words(listed: str) -> list[str]:
    """Those between commas."""
    return [word for each in listed.split(",") if (word := each.strip())]
