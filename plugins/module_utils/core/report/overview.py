# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters in the overview of the HTML report."""

from __future__ import annotations

from dataclasses import dataclass

from . import words
from .views import ClusterView

# The strongest color.
_MAX_LEVEL = 10


@dataclass(frozen=True)
class Tile:
    """Cluster in the overview.

    load: devices in use, and all devices.
    level: strength of the color, from 0 to 10.
    flags: signs for problems.
    label: text for screen readers.
    """

    name: str
    load: str
    level: int
    kind: words.HealthKind
    flags: str
    label: str


def tile(cluster: ClusterView) -> Tile:
    """Return the tile of a cluster."""
    use, kind = cluster.use, words.health_kind(cluster.status.state)
    is_bad = cluster.is_overcommitted or kind == "bad"
    flags = "!" if is_bad else "?" if kind == "unknown" else ""
    label = f"{cluster.name}: {cluster.status.state}, {use.used:,}{use.text}"
    label += ", a pool is overcommitted" if cluster.is_overcommitted else ""
    label += ", takes nothing new" if cluster.reason else ""
    label += "".join(f", runs InferenceGateway {name}" for name in cluster.gateways)
    return Tile(
        name=words.short_name(cluster.name),
        load=f"{use.used:,}/{use.devices:,}" if use.devices else "–",
        level=min(_MAX_LEVEL, _MAX_LEVEL * use.used // use.devices) if use.devices else 0,
        kind="bad" if cluster.is_overcommitted else kind,
        flags=flags + ("×" if cluster.reason else ""),
        label=label,
    )
