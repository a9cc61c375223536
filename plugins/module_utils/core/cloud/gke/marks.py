# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whose an object in Google Cloud is. What does not carry our mark is never changed or deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.differences import held
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.requests import words


def mark(kind: str, value: Mapping[str, Any]) -> dict[str, str]:
    """The mark on an object, or in a body: the labels that say whose it is; what of them it has."""
    place = KINDS[kind].mark
    found = (held(value, place) if place else None) or {}
    if isinstance(found, str):
        pairs = (part.partition("=") for part in found.split())
        found = {key: rest for key, sign, rest in pairs if sign}
    return {key: str(found[key]) for key in names.MARK if key in found}


def foreign(resource: Mapping[str, Any], have: Mapping[str, Any]) -> str:
    """Why an object that is there is not that of the plan: a sentence, empty when it is. What carries no mark at all,
    such as an API, belongs to nobody."""
    kind = resource["kind"]
    if not KINDS[kind].mark:
        return ""
    there, ours = mark(kind, have), mark(kind, resource["body"])
    if there == ours:
        return ""
    what = words(resource)
    if there.get(names.MANAGED_BY_LABEL) != names.MANAGED_BY:
        return (
            f"{what} exists already, and was not made by this collection: it has no {names.MANAGED_BY_LABEL}="
            f"{names.MANAGED_BY} in its {_place(kind)}. Remove or rename it, or give the cluster another name"
        )
    others = [key for key in names.MARK if there.get(key) != ours.get(key)]
    theirs = ", ".join(f"{key}={there.get(key, '')}" for key in others)
    return (
        f"{what} exists already, and is another's: {theirs} in its {_place(kind)}, not "
        f"{', '.join(ours.get(key, '') for key in others)}. Give the cluster another name, or set "
        "gke_cluster_fleet to the name of the fleet that it belongs to"
    )


def elsewhere(subnetwork: Mapping[str, Any], network: Mapping[str, Any]) -> Iterator[str]:
    """Where a subnetwork of the plan is, when that is another region than the plan says: a sentence for each.

    `network`: as the API returns it; it is in all regions, and tells of its subnetworks.
    """
    wanted = str(subnetwork["parent"]).rpartition("/")[2]
    for link in network.get("subnetworks") or ():
        region, _collection, name = str(link).split("/")[-3:]
        if name == subnetwork["name"] and region != wanted:
            yield (
                f"{words(subnetwork)} is in {region} already, and {wanted} is asked for. Google moves nothing to "
                f"another region: set spec.region back to {region}; to have the cluster elsewhere, remove it first"
            )


def _place(kind: str) -> str:
    return "description" if KINDS[kind].mark.endswith("description") else "labels"
