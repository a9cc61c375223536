# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The CustomResourceDefinitions of a cluster, and how many objects each has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..core import names
from ..core.wire import Object, fields, text
from .client import Client
from .observe import listed


def described(client: Client, groups: Collection[str], desired: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the CRDs with these groups or names, by name. Raise ApiError.

    Each CRD has `group`, `kind`, `managed_by` (the label), and `objects`. `objects` is the number of objects, or -1 if
    no version is served."""
    definitions = {}
    for value in client.list("apiextensions.k8s.io/v1", "CustomResourceDefinition").items:
        name, group = text(value, "metadata", "name"), text(value, "spec", "group")
        if group in groups or name in desired:
            definitions[name] = {
                "group": group,
                "kind": text(value, "spec", "names", "kind"),
                "managed_by": text(value, "metadata", "labels", names.MANAGED_BY_LABEL),
                "objects": _count(client, value),
            }
    return definitions


def _count(client: Client, definition: Object) -> int:
    """Return the number of objects of a CRD. Any served version lists all of them."""
    spec = fields(definition, "spec")
    served = [version["name"] for version in spec.get("versions") or () if version.get("served")]
    if not served:
        return -1
    group_version = f"{text(spec, 'group')}/{served[0]}"
    return len(listed(client, group_version, text(spec, "names", "kind"), labels=""))
