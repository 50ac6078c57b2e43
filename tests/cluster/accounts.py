"""Service accounts: their tokens, and the files that the kubelet lays into a pod."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.cluster.rbac import ADMIN, User

PREFIX: Final = "system:serviceaccount:"


def account_user(name: str, uid: str = "") -> User | None:
    """With the groups of every service account; None: it is none's name."""
    namespace, colon, _ = name.removeprefix(PREFIX).partition(":")
    if not name.startswith(PREFIX) or not colon:
        return None
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
    return User(name, (*groups, "system:authenticated"), uid)


@dataclass
class Accounts:
    """Whose token is whose."""

    _users: dict[str, User] = field(default_factory=dict)
    _tokens: dict[str, set[str]] = field(default_factory=dict)

    def user(self, token: str) -> User | None:
        return self._users.get(token)

    def admin(self) -> str:
        return self._issued("admin", ADMIN)

    def issue(self, namespace: str, name: str, uid: str = "") -> str:
        user = account_user(f"{PREFIX}{namespace}:{name}", uid)
        assert user is not None
        return self._issued(user.name, user)

    def withdraw(self, namespace: str, name: str) -> None:
        """No token of the account is good any more."""
        for token in self._tokens.pop(f"{PREFIX}{namespace}:{name}", set()):
            del self._users[token]

    def _issued(self, name: str, user: User) -> str:
        token = f"{name.replace(':', '.')}.{uuid.uuid4().hex}"
        self._users[token] = user
        self._tokens.setdefault(name, set()).add(token)
        return token


def lay(folder: Path, token: str, ca: bytes, namespace: str) -> None:
    """The token is replaced in one step, as the kubelet does it."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "token.new"
    fresh.write_text(token)
    fresh.rename(folder / "token")
    (folder / "ca.crt").write_bytes(ca)
    (folder / "namespace").write_text(namespace)


def kubeconfig(path: Path, server: str, ca_file: Path, token: str, namespace: str) -> None:
    """JSON, which is YAML."""
    context = {"cluster": "tests", "user": "tests", "namespace": namespace}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [
            {
                "name": "tests",
                "cluster": {"server": server, "certificate-authority": str(ca_file)},
            }
        ],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": context}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
