"""Questions that are asked by making an object: who am I, may I, whose token is this."""

from __future__ import annotations

from typing import Any

from tests.cluster import rbac
from tests.cluster.accounts import Accounts
from tests.cluster.answers import bad_request
from tests.cluster.rbac import Deed, User
from tests.cluster.storage import Storage

Thing = dict[str, Any]


def answered(
    plural: str, user: User, body: Any, storage: Storage, accounts: Accounts, *, enforced: bool
) -> Thing:
    if not isinstance(body, dict):
        raise bad_request("the body of the request is no object")
    spec = body.get("spec") or {}
    status: Thing
    match plural:
        case "selfsubjectreviews":
            status = {"userInfo": user.info()}
        case "tokenreviews":
            found = accounts.user(str(spec.get("token") or ""))
            status = {"authenticated": found is not None}
            if found is not None:
                status["user"] = found.info()
            else:
                status["error"] = "invalid bearer token"
        case "selfsubjectrulesreviews":
            rules = rbac.rules(storage, user, str(spec.get("namespace") or "default"))
            status = {"resourceRules": list(rules), "nonResourceRules": [], "incomplete": False}
        case _:
            about = user
            if not plural.startswith("self"):
                about = User(str(spec.get("user") or ""), tuple(spec.get("groups") or ()))
            may = _may(spec, about, storage, enforced=enforced)
            status = {"allowed": may}
    return {**body, "status": status}


def _may(spec: Thing, user: User, storage: Storage, *, enforced: bool) -> bool:
    if not enforced:
        return True
    wanted = spec.get("resourceAttributes")
    if wanted is None:
        return True
    deed = Deed(
        wanted.get("verb", ""),
        wanted.get("group", ""),
        wanted.get("resource", ""),
        wanted.get("namespace", ""),
        wanted.get("name", ""),
        wanted.get("subresource", ""),
    )
    return rbac.allowed(storage, user, deed)
