# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secret of the fleet on the control cluster. It is recognized by its labels, and never acquired from another owner."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from ..core import names
from ..core.compose.constants import SYSTEM_NAMESPACE
from ..core.compose.control import system_namespace
from ..core.wire import Object, fields, text
from .client import Client
from .connection import SecretRef
from .errors import ApiError

FIELD_MANAGER = "modelplane.fleet.provision"
"""Differs from the field manager of builds, which would prune the Secret as an undesired object."""

_KIND = ("v1", "Secret")


def labels(more: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of such a Secret."""
    return {**more, names.MANAGED_BY_LABEL: names.MANAGED_BY}


def read(control: Client, place: SecretRef) -> Object | None:
    """Return the Secret, or None if it does not exist. Raise ApiError."""
    return control.get(*_KIND, place.name, place.namespace)


def check_ours(control: Client, place: SecretRef, live: Object | None, desired: Mapping[str, str], what: str) -> None:
    """Raise ApiError for a Secret that the fleet did not create. `what`: its content, such as "the kubeconfig"."""
    have = fields(live, "metadata", "labels")
    if live is None or all(
        have.get(key) == desired[key] for key in (names.MANAGED_BY_LABEL, names.CLUSTER_LABEL) if key in desired
    ):
        return
    if have.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY:
        owner = have.get(names.CLUSTER_LABEL) or "none"
        why = f"it is {what} of another cluster (its label {names.CLUSTER_LABEL} names {owner})"
    else:
        why = f"it was not made by modelplane.fleet (it has no label {names.MANAGED_BY_LABEL}={names.MANAGED_BY})"
    raise ApiError(
        why,
        cluster=control.name,
        action=f"touch Secret {place.namespace}/{place.name}",
        hint="Rename or remove it, and run again",
    )


def write(control: Client, place: SecretRef, desired: Mapping[str, str], value: str, live: Object | None) -> None:
    """Write a text to the Secret. Create the Secret and its namespace if they do not exist. Raise ApiError."""
    if live is None:
        _make_namespace(control, place.namespace)
    metadata: dict[str, object] = {"name": place.name, "namespace": place.namespace, "labels": dict(desired)}
    if live is not None:
        # The UID ensures that another Secret with the same name is not changed.
        metadata["uid"] = text(live, "metadata", "uid")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        # The type of a Secret never changes.
        "type": text(live, "type") or "Opaque",
        "data": {place.key: base64.b64encode(value.encode("utf-8")).decode("ascii")},
    }
    # Keys and labels of the fleet that another manager changed are overridden. A new Secret has no other manager.
    control.apply(secret, manager=FIELD_MANAGER, force=live is not None)


def delete(control: Client, place: SecretRef, live: Object) -> bool:
    """Delete the Secret with the UID of `live`. Return True if it still existed. Raise ApiError."""
    return bool(control.delete(*_KIND, place.name, place.namespace, uid=text(live, "metadata", "uid")))


def _make_namespace(control: Client, namespace: str) -> None:
    """Create a missing namespace. Only the system namespace gets the fleet label. Other namespaces belong to users."""
    if control.get("v1", "Namespace", namespace) is not None:
        return
    if namespace == SYSTEM_NAMESPACE:
        control.apply(system_namespace())
    else:
        control.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
