# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Comparisons of values of Google Cloud, besides those of the engine: the actual and the desired value, in this order.

Google names other objects by URLs of various lengths, and adds labels and taints of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import addresses
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine import compare

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


def node_labels(have: Any, want: Any) -> bool:
    """Labels of nodes: those that are desired, and no other that only a plan sets."""
    return with_node_labels(have, want) == dict(have or {})


def with_node_labels(have: Any, want: Any) -> dict[str, str]:
    """The labels that nodes should have: those that are desired, and those of others."""
    others = {key: held for key, held in (have or {}).items() if not key.startswith(_OWN_LABELS)}
    return {**others, **want}


def own_node_labels(have: Any, want: Any) -> Any:
    """The labels that are there, without those of others."""
    held = (have or {}).items()
    return have and {key: each for key, each in held if key in want or key.startswith(_OWN_LABELS)}


def reference(have: Any, want: Any) -> bool:
    """The name of another object: alone, from its project on, or as a URL."""
    return _parts(have)[-1:] == _parts(want)[-1:] if "/" not in str(have or "") else _parts(have) == _parts(want)


def networks(have: Any, want: Any) -> bool:
    """Interfaces of nodes in their order: each with the network and subnetwork, named by name or URL."""
    held = have or ()
    return len(held) == len(want) and all(
        reference(there.get(field), each[field])
        for there, each in zip(held, want, strict=True)
        for field in ("network", "subnetwork")
    )


def node_account(have: Any, want: Any) -> bool:
    """The service account of nodes; that of Compute Engine is called default, or by its address."""
    if want == "default":
        return not have or have == "default" or str(have).endswith("-compute@developer.gserviceaccount.com")
    return bool(have == want)


def datapath(have: Any, want: Any) -> bool:
    """The datapath provider; one that is not said is the older one."""
    return bool((have or "LEGACY_DATAPATH") == want)


def authorized_networks(have: Any, want: Any) -> bool:
    """Networks that reach a control plane, without an order; the text for people counts, too."""
    held = have or {}
    return bool(held.get("enabled")) and _networks(held) == _networks(want)


def nats(have: Any, want: Any) -> bool:
    """Gateways of a router, each with the desired fields."""
    held = _by(have, "name")
    return set(held) == set(_by(want, "name")) and all(compare.subset(held[entry["name"]], entry) for entry in want)


def _networks(config: Any) -> set[tuple[str, str]]:
    return {(entry["cidrBlock"], entry.get("displayName") or "") for entry in config.get("cidrBlocks") or ()}


def version(have: Any, want: Any) -> bool:
    """A version of Kubernetes: what is there is the one that is desired, or newer, as its channel installs newer ones.

    `1.35` is all of `1.35.4-gke.1000`. Aliases name what is newest at the time, and are fulfilled by any.
    """
    if want in _ALIASES:
        return True
    desired = numbers(want)
    return numbers(have)[: len(desired)] >= desired


def numbers(version_text: Any) -> tuple[int, ...]:
    """The numbers of a version, in their order."""
    return tuple(int(part) for part in re.findall(r"\d+", str(version_text or "")))


def wider(have: Any, want: Any) -> bool:
    """Return whether a range is within another, as which it can grow."""
    try:
        return addresses.within(addresses.network(str(have)), addresses.network(str(want)))
    except addresses.AddressError:
        return False


def ranges(have: Any, want: Any) -> bool:
    """Secondary ranges of a subnetwork: those that are desired; others stay."""
    held = _by(have, "rangeName")
    return all(held.get(entry["rangeName"], {}).get("ipCidrRange") == entry["ipCidrRange"] for entry in want)


def own_ranges(have: Any, want: Any) -> Any:
    """The secondary ranges that are there, without those of others."""
    names = {entry["rangeName"] for entry in want}
    return have and [entry for entry in have if entry["rangeName"] in names]


def more_ranges(have: Any, want: Any) -> bool:
    """Return whether those that are desired are there already, or not at all: one that is there cannot be changed."""
    held = _by(have, "rangeName")
    return all(
        entry["rangeName"] not in held or held[entry["rangeName"]].get("ipCidrRange") == entry["ipCidrRange"]
        for entry in want
    )


def accelerators(have: Any, want: Any) -> bool:
    """Accelerators of machines, without an order, each with the desired fields."""
    held = _by(have, "acceleratorType")
    return set(held) == {entry["acceleratorType"] for entry in want} and all(
        compare.subset(held[entry["acceleratorType"]], entry) for entry in want
    )


def taints(have: Any, want: Any) -> bool:
    """Taints of nodes, without an order, but for those that GKE itself sets."""
    return _taints(_of_others(have)) == _taints(_of_others(want))


def own_taints(have: Any, _want: Any) -> Any:
    """The taints that are there, without those that GKE itself sets."""
    return _of_others(have)


def with_taints(have: Any, want: Any) -> list[dict[str, Any]]:
    """The taints that nodes should have: those that are desired, and those that GKE itself sets."""
    google = [dict(entry) for entry in have or () if entry["key"].startswith(_GOOGLE_TAINTS)]
    taken = {(entry["key"], entry.get("effect")) for entry in want}
    return [*(entry for entry in google if (entry["key"], entry.get("effect")) not in taken), *map(dict, want)]


def _of_others(entries: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in entries or () if not entry["key"].startswith(_GOOGLE_TAINTS)]


def _taints(entries: Sequence[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    return {(entry["key"], entry.get("value") or "", entry.get("effect") or "") for entry in entries}


def _by(entries: Any, key: str) -> dict[str, Mapping[str, Any]]:
    return {str(entry.get(key)): entry for entry in entries or ()}


def _parts(url: Any) -> list[str]:
    """The parts of a URL from the project on."""
    parts = str(url or "").split("/")
    return parts[parts.index("projects") :] if "projects" in parts else parts
