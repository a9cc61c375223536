# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secret on the control cluster with the connection to a cluster, for other programs on the control cluster.

The token in it expires (in some clouds after 15 minutes), so each run renews it. A new token is not a change. A new
address or certificate of the cluster is a change.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..cloud.registry import LOGINS
from ..core.manifest_text import to_yaml
from ..core.wire import Object, entries, fields, text
from ..core.yaml_documents import Source, documents
from ..http.errors import shown_url
from . import owned_secret
from .client import Client
from .connection import SecretRef
from .credentials import AccessError, Fixed, bearer
from .kubeconfig_file import kubeconfig_of, kubeconfig_with

_WHAT = "the kubeconfig"


@dataclass(frozen=True)
class Written:
    """Result for the Secret."""

    changed: bool
    renewed: bool = False
    """True if only the token changed."""
    server: str = ""
    """URL of the server, empty if unknown."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """Non-secret content before the run, empty if the Secret did not exist."""
    after: Mapping[str, Any] = field(default_factory=dict)
    """Non-secret content after the run, empty if the Secret does not exist."""


def ensure(
    control: Client,
    cluster: Client,
    place: SecretRef,
    labels: Mapping[str, str],
    *,
    check_mode: bool,
    account_key: SecretRef | None = None,
) -> Written:
    """Create or update the Secret with a kubeconfig and a new token for `cluster`. Raise ApiError and AccessError.

    The token belongs to the service account with its key in the Secret `account_key`, or to the user that connects to
    `cluster`. The errors include a Secret that the fleet did not create. In check mode, no token is created, and a
    cluster without the Secret does not need to exist."""
    desired = owned_secret.labels(labels)
    live = owned_secret.read(control, place)
    owned_secret.check_ours(control, place, live, desired, _WHAT)
    if live is None and check_mode:
        return Written(True, after={"labels": desired, "keys": [place.key]})
    target = cluster.target()
    kubeconfig = _without_user(kubeconfig_with(cluster.name, cluster.name, target, {}))
    previous_state = _shown(live, place.key) if live is not None else {}
    desired_state = {"labels": {**previous_state.get("labels", {}), **desired}, "kubeconfig": kubeconfig}
    changed = previous_state != desired_state
    if not check_mode:
        if account_key is not None:
            target = replace(target, credentials=_of_key(control, account_key), impersonate="")
        owned_secret.write(control, place, desired, to_yaml(kubeconfig_of(cluster.name, target)), live)
    return Written(
        changed, renewed=not changed, server=shown_url(target.server), before=previous_state, after=desired_state
    )


def remove(control: Client, place: SecretRef, labels: Mapping[str, str], *, check_mode: bool) -> Written:
    """Delete the Secret. Raise ApiError, also for a Secret that the fleet did not create."""
    live = owned_secret.read(control, place)
    if live is None:
        return Written(False)
    owned_secret.check_ours(control, place, live, owned_secret.labels(labels), _WHAT)
    was_there = check_mode or owned_secret.delete(control, place, live)
    return Written(was_there, before=_shown(live, place.key))


def _of_key(control: Client, reference: SecretRef) -> Fixed:
    """Return a token of the key of an account of a cloud in a Secret. Raise ApiError and AccessError."""
    origin = f"(Secret {reference.namespace}/{reference.name}, key {reference.key})"
    try:
        data = base64.b64decode(text(owned_secret.read(control, reference), "data", reference.key), validate=True)
        key = json.loads(data)
    except (binascii.Error, ValueError):
        key = None
    grants = (logins.of_key(key, origin) for logins in LOGINS.values() if isinstance(key, dict))
    grant = next((grant for grant in grants if grant is not None), None)
    if grant is None:
        raise AccessError(f"there is no key of a service account in {origin}")
    return Fixed(bearer(grant.token))


def _shown(live: Object, key: str) -> dict[str, Any]:
    """Return the non-secret fields of the Secret."""
    labels = dict(fields(live, "metadata", "labels"))
    try:
        data = base64.b64decode(text(live, "data", key), validate=True)
        read = list(documents(Source(key, data)))
    except (binascii.Error, ValueError):
        read = []
    value = read[0].value if len(read) == 1 and not read[0].problems else None
    return {"labels": labels, "kubeconfig": _without_user(value) if isinstance(value, Mapping) and value else {}}


def _without_user(kubeconfig: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kubeconfig with only the name of its user, and without possible secrets in URLs."""
    clusters = []
    for entry in entries(kubeconfig, "clusters"):
        cluster = {
            key: shown_url(value) if key in ("server", "proxy-url") and isinstance(value, str) else value
            for key, value in fields(entry, "cluster").items()
        }
        clusters.append({"name": text(entry, "name"), "cluster": cluster})
    return {
        "clusters": clusters,
        "contexts": [dict(entry) for entry in entries(kubeconfig, "contexts")],
        "current-context": text(kubeconfig, "current-context"),
        "users": [text(entry, "name") for entry in entries(kubeconfig, "users")],
    }
