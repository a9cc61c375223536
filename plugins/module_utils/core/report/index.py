# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Links between the parts of the page: the elements of clusters, replicas and services, and who calls whom.

A model is the plan as plain values (`report.html` gives its shape). Elements are named by position (`c0`, `r0`, `s0`),
so that no name that a user chose becomes part of an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COLOURS = 10
"""Number of colours that deployments share. Numbers and names stand beside them, for equal ones."""

# Of more clusters, drawings of nodes would be most of the page, and each pool is one bar.
_MOST_DRAWN = 100


@dataclass(frozen=True)
class Caller:
    """A service that sends a replica requests: its position, its name, and the part of the weight, of the whole."""

    service: int
    name: str
    weight: int
    whole: int


@dataclass(frozen=True)
class Index:
    """Elements: `clusters` by name, `services` by (namespace, name), `replicas` by (namespace,
    replica). Rows of the model: `cluster_rows` and `placed` likewise. `callers` by (namespace, replica), `colours` by
    (namespace, deployment). `is_drawn`: whether pools are drawn as nodes."""

    clusters: Mapping[str, str]
    cluster_rows: Mapping[str, Mapping[str, Any]]
    services: Mapping[tuple[str, str], str]
    replicas: Mapping[tuple[str, str], str]
    callers: Mapping[tuple[str, str], tuple[Caller, ...]]
    colours: Mapping[tuple[str, str], int]
    placed: Mapping[tuple[str, str], Mapping[str, Any]]
    is_drawn: bool


def index(model: Mapping[str, Any]) -> Index:
    """The index of a model. Of two replicas of one name in a namespace, the first is the one that is linked."""
    placed: dict[tuple[str, str], Mapping[str, Any]] = {}
    replicas: dict[tuple[str, str], str] = {}
    for position, replica in enumerate(model["replicas"]):
        key = (replica["namespace"], replica["replica"])
        replicas.setdefault(key, f"r{position}")
        placed.setdefault(key, replica)
    callers: dict[tuple[str, str], list[Caller]] = {}
    for position, service in enumerate(model["services"]):
        whole = serving_weight(service)
        for endpoint in service["endpoints"]:
            if endpoint["replica"] and serves(service, endpoint):
                caller = Caller(position, f"{service['namespace']}/{service['name']}", endpoint["weight"], whole)
                callers.setdefault((service["namespace"], endpoint["replica"]), []).append(caller)
    return Index(
        clusters={cluster["name"]: f"c{position}" for position, cluster in enumerate(model["clusters"])},
        cluster_rows={cluster["name"]: cluster for cluster in model["clusters"]},
        services={
            (service["namespace"], service["name"]): f"s{position}"
            for position, service in enumerate(model["services"])
        },
        replicas=replicas,
        callers={key: tuple(found) for key, found in callers.items()},
        colours={key: position % COLOURS for position, key in enumerate(_deployments(model))},
        placed=placed,
        is_drawn=len(model["clusters"]) <= _MOST_DRAWN,
    )


def _deployments(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = {(replica["namespace"], replica["deployment"]) for replica in model["replicas"]}
    for cluster in model["clusters"]:
        for pool in cluster["pools"]:
            found |= {(entry["namespace"], entry["deployment"]) for entry in pool["occupied"]}
    return sorted(found)


def serves(service: Mapping[str, Any], endpoint: Mapping[str, Any]) -> bool:
    """Return whether requests go to an endpoint: it is usable, of the tier in use, and has a weight."""
    in_use = service["tier"] is not None and endpoint["priority"] == service["tier"]
    return bool(in_use and endpoint["usable"] and endpoint["weight"] > 0)


def serving_weight(service: Mapping[str, Any]) -> int:
    """The weights of a service's endpoints that get requests, in all; 0 when none does."""
    return sum(endpoint["weight"] for endpoint in service["endpoints"] if serves(service, endpoint))
