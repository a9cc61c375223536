# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Comparisons of values of Google Cloud, in addition to the engine: the actual and the desired value, in this order.

Google refers to other objects by URLs of various lengths, and adds its own labels and taints.
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
"""Prefixes of node labels that only a plan sets: a label that the plan does not have is removed. Other labels are left
unchanged."""
_GOOGLE_TAINTS = (
    "nvidia.com/",
    "cloud.google.com/",
    "components.gke.io/",
    "kubernetes.io/arch",
    "google.com/",
    "sandbox.gke.io/",
)
"""Prefixes of keys of taints that GKE itself sets."""
_ALIASES = ("latest", "-")


def node_labels(actual: Any, desired: Any) -> bool:
    """Compare node labels: the desired labels, and no other label with a prefix of the plan."""
    return with_node_labels(actual, desired) == dict(actual or {})


def with_node_labels(actual: Any, desired: Any) -> dict[str, str]:
    """Return the node labels to send: the desired labels, and the labels of other owners."""
    unmanaged_labels = {key: content for key, content in (actual or {}).items() if not key.startswith(_OWN_LABELS)}
    return {**unmanaged_labels, **desired}


def own_node_labels(actual: Any, desired: Any) -> Any:
    """Return the actual labels without the labels of other owners."""
    actual_labels = (actual or {}).items()
    return actual and {key: content for key, content in actual_labels if key in desired or key.startswith(_OWN_LABELS)}


def reference(actual: Any, desired: Any) -> bool:
    """Compare references to another object: only its name, a path from its project on, or a URL."""
    actual_parts, desired_parts = _parts(actual), _parts(desired)
    return actual_parts[-1:] == desired_parts[-1:] if len(actual_parts) == 1 else actual_parts == desired_parts


def networks(actual: Any, desired: Any) -> bool:
    """Compare interfaces of nodes in order: each with its network and subnetwork, by name or URL."""
    actual_networks = actual or ()
    return len(actual_networks) == len(desired) and all(
        reference(actual_network.get(field), desired_network[field])
        for actual_network, desired_network in zip(actual_networks, desired, strict=True)
        for field in ("network", "subnetwork")
    )


def node_account(actual: Any, desired: Any) -> bool:
    """Compare the service account of nodes. The account of Compute Engine is named `default`, or by its address."""
    if desired == "default":
        return not actual or actual == "default" or str(actual).endswith("-compute@developer.gserviceaccount.com")
    return bool(actual == desired)


def datapath(actual: Any, desired: Any) -> bool:
    """Compare the datapath provider; an unset provider is the legacy datapath."""
    return bool((actual or "LEGACY_DATAPATH") == desired)


def authorized_networks(actual: Any, desired: Any) -> bool:
    """Compare the networks with access to a control plane, without an order. Display names are compared, too."""
    actual_config = actual or {}
    return bool(actual_config.get("enabled")) and _networks(actual_config) == _networks(desired)


def _networks(config: Any) -> set[tuple[str, str]]:
    return {(entry["cidrBlock"], entry.get("displayName") or "") for entry in config.get("cidrBlocks") or ()}


def version(actual: Any, desired: Any) -> bool:
    """Compare a version of Kubernetes. A newer version is equal, because its channel installs newer versions.

    Aliases stand for the newest version at the time, so any version matches.
    """
    return desired in _ALIASES or compare.at_least(actual, desired)


def wider(actual: Any, desired: Any) -> bool:
    """Return True if the desired range contains the actual range, so the range can grow to it."""
    try:
        return addresses.within(addresses.network(str(actual)), addresses.network(str(desired)))
    except addresses.AddressError:
        return False


def own_ranges(actual: Any, desired: Any) -> Any:
    """Return the actual secondary ranges without the ranges of other owners."""
    names = {entry["rangeName"] for entry in desired}
    return actual and [entry for entry in actual if entry["rangeName"] in names]


def more_ranges(actual: Any, desired: Any) -> bool:
    """Return True if no desired range differs from an existing range, because an existing range cannot be changed."""
    actual_ranges = {entry["rangeName"]: entry for entry in actual or ()}
    return all(
        entry["rangeName"] not in actual_ranges
        or actual_ranges[entry["rangeName"]].get("ipCidrRange") == entry["ipCidrRange"]
        for entry in desired
    )


def taints(actual: Any, desired: Any) -> bool:
    """Compare taints of nodes, without an order and without the taints of GKE."""
    return _taints(_of_others(actual)) == _taints(_of_others(desired))


def own_taints(actual: Any, _desired: Any) -> Any:
    """Return the actual taints without the taints of GKE."""
    return _of_others(actual)


def with_taints(actual: Any, desired: Any) -> list[dict[str, Any]]:
    """Return the taints to send: the desired taints, and the taints of GKE."""
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
    """Return the parts of a URL from the project on."""
    segments = str(url or "").split("/")
    return segments[segments.index("projects") :] if "projects" in segments else segments
