# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How a real API server takes the tokens of an EKS cluster: the webhook that it asks, as EKS runs one for its own.

A principal gets in by its access entry. Of the access policies the one of administrators counts, which becomes the
group system:masters; otherwise the groups of the entry do.
"""

from __future__ import annotations

import json
from typing import Any

from . import tokens
from .account import Account
from .eks_access import ADMIN_POLICY

PATH = "/token-review/"
"""Below it, the name of a cluster: where TokenReviews of its API server go."""


def kubeconfig(url: str, cluster: str) -> str:
    """What --authentication-token-webhook-config-file of an API server takes."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "aws", "cluster": {"server": f"{url}{PATH}{cluster}"}}],
            "users": [{"name": "api-server", "user": {}}],
            "contexts": [{"name": "webhook", "context": {"cluster": "aws", "user": "api-server"}}],
            "current-context": "webhook",
        }
    )


def answer(account: Account, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """The TokenReview of authentication.k8s.io/v1 with its status."""
    asked = json.loads(body)
    status = _status(account, path.removeprefix(PATH), asked["spec"]["token"])
    reviewed = {"apiVersion": asked["apiVersion"], "kind": "TokenReview", "status": status}
    return 200, {"Content-Type": "application/json"}, json.dumps(reviewed).encode()


def _status(account: Account, cluster: str, token: str) -> dict[str, Any]:
    try:
        principal = tokens.who(account, token, cluster)
    except ValueError as error:
        return {"authenticated": False, "error": str(error)}
    known = [region.clusters[cluster] for region in account.regions.values() if cluster in region.clusters]
    if not known:
        return {"authenticated": False, "error": f"there is no cluster {cluster}"}
    entry = known[0].entries.get(principal.entry)
    if entry is None:
        return {"authenticated": False, "error": f"{principal.entry} has no access entry in {cluster}"}
    groups = ["system:masters"] if ADMIN_POLICY in entry.policies else list(entry.groups)
    return {"authenticated": True, "user": {"username": principal.arn, "uid": principal.user_id, "groups": groups}}
