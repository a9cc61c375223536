# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Comparisons of values of Google Cloud, besides those of the engine: the actual and the desired value, in this order.

Google names other objects by URLs of various lengths, and adds labels and taints of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import addresses
from ..engine import compare

_OWN_LABELS = (
    "modelplane.ai/",
    "cloud.google.com/gke-nvidia-gpu-dra-driver",
    "gke-no-default-nvidia",
    "nvidia.com/gpu.present",
)
"""Beginning of labels of nodes that only a plan sets: one that it does not have goes. Others stay."""
_GOOGLE_TAINTS = (
    "nvidia.com/",
    "cloud.google.com/",
    "components.gke.io/",
    "kubernetes.io/arch",
    "google.com/",
    "sandbox.gke.io/",
)
"""Beginnings of keys of taints that GKE itself sets."""
_ALIASES = ("latest", "-")


def node_labels(actual: Any, desired: Any) -> bool:
    """Labels of nodes: those that are desired, and no other that only a plan sets."""
    return with_node_labels(actual, desired) == dict(actual or {})


def with_node_labels(actual: Any, desired: Any) -> dict[str, str]:
    """The labels that nodes should have: those that are desired, and those of others."""
    unmanaged_labels = {key: content for key, content in (actual or {}).items() if not key.startswith(_OWN_LABELS)}
    return {**unmanaged_labels, **desired}


def own_node_labels(actual: Any, desired: Any) -> Any:
    """The labels that are there, without those of others."""
    actual_labels = (actual or {}).items()
    return actual and {key: content for key, content in actual_labels if key in desired or key.startswith(_OWN_LABELS)}


def reference(actual: Any, desired: Any) -> bool:
    """The name of another object: alone, from its project on, or as a URL."""
    actual_parts, desired_parts = _parts(actual), _parts(desired)
    return actual_parts[-1:] == desired_parts[-1:] if len(actual_parts) == 1 else actual_parts == desired_parts


def networks(actual: Any, desired: Any) -> bool:
    """Interfaces of nodes in their order: each with the network and subnetwork, named by name or URL."""
    actual_networks = actual or ()
    return len(actual_networks) == len(desired) and all(
        reference(actual_network.get(field), desired_network[field])
        for actual_network, desired_network in zip(actual_networks, desired, strict=True)
        for field in ("network", "subnetwork")
    )


def node_account(actual: Any, desired: Any) -> bool:
    """The service account of nodes; that of Compute Engine is called default, or by its address."""
    if desired == "default":
        return not actual or actual == "default" or str(actual).endswith("-compute@developer.gserviceaccount.com")
    return bool(actual == desired)


def datapath(actual: Any, desired: Any) -> bool:
    """The datapath provider; one that is not said is the older one."""
    return bool((actual or "LEGACY_DATAPATH") == desired)


def authorized_networks(actual: Any, desired: Any) -> bool:
    """Networks that reach a control plane, without an order; the text for people counts, too."""
    actual_config = actual or {}
    return bool(actual_config.get("enabled")) and _networks(actual_config) == _networks(desired)


def _networks(config: Any) -> set[tuple[str, str]]:
    return {(entry["cidrBlock"], entry.get("displayName") or "") for entry in config.get("cidrBlocks") or ()}


def version(actual: Any, desired: Any) -> bool:
    """A version of Kubernetes, or a newer one, as its channel installs newer ones.

    Aliases name what is newest at the time, and are fulfilled by any.
    """
    return desired in _ALIASES or compare.at_least(actual, desired)


def wider(actual: Any, desired: Any) -> bool:
    """Return whether a range is within another, as which it can grow."""
    try:
        return addresses.within(addresses.network(str(actual)), addresses.network(str(desired)))
    except addresses.AddressError:
        return False


def own_ranges(actual: Any, desired: Any) -> Any:
    """The secondary ranges that are there, without those of others."""
    names = {entry["rangeName"] for entry in desired}
    return actual and [entry for entry in actual if entry["rangeName"] in names]


def more_ranges(actual: Any, desired: Any) -> bool:
    """Return whether those that are desired are there already, or not at all: one that is there cannot be changed."""
    actual_ranges = {entry["rangeName"]: entry for entry in actual or ()}
    return all(
        entry["rangeName"] not in actual_ranges
        or actual_ranges[entry["rangeName"]].get("ipCidrRange") == entry["ipCidrRange"]
        for entry in desired
    )


def taints(actual: Any, desired: Any) -> bool:
    """Taints of nodes, without an order, but for those that GKE itself sets."""
    return _taints(_of_others(actual)) == _taints(_of_others(desired))


def own_taints(actual: Any, _desired: Any) -> Any:
    """The taints that are there, without those that GKE itself sets."""
    return _of_others(actual)


def with_taints(actual: Any, desired: Any) -> list[dict[str, Any]]:
    """The taints that nodes should have: those that are desired, and those that GKE itself sets."""
    google = [dict(entry) for entry in actual or () if entry["key"].startswith(_GOOGLE_TAINTS)]
    desired_taints = {(entry["key"], entry.get("effect")) for entry in desired}
    return [
        *(entry for entry in google if (entry["key"], entry.get("effect")) not in desired_taints),
        *map(dict, desired),
    ]


def _of_others(entries: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in entries or () if not entry["key"].startswith(_GOOGLE_TAINTS)]


def _taints(entries: Sequence[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    return {(entry["key"], entry.get("value") or "", entry.get("effect") or "") for entry in entries}


def _parts(url: Any) -> list[str]:
    """The parts of a URL from the project on."""
    segments = str(url or "").split("/")
    return segments[segments.index("projects") :] if "projects" in segments else segments
