# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans of a GKE cluster in its project: their detection, and their order of deletion.

Controllers in a cluster create load balancers for Services, and drivers create disks and Filestore instances for
volumes. If the cluster is deleted first, these objects remain: they cost money, and prevent the deletion of the
network. Each cluster has its own network, so objects in it with the name of a controller belong to the cluster. The
other objects of a load balancer are not in a network. They are identified by their references, or by their names:

==============================  =======================================================================================
name                            of
==============================  =======================================================================================
a0123456789abcdef...            a Service: `a` and its UID; firewall rules are k8s-fw-NAME, k8s-NAME-http-hc, NAME-hc
k8s2-[tcp-]CLUSTER-...          a Service or an Ingress; firewall rules are k8s2-CLUSTER-... and k8s3-CLUSTER-...
k8s1-CLUSTER-...                the endpoints of a Service
k8s-CLUSTER-node, ...--CLUSTER  all Services, or an Ingress
gkegw1-..., gkemcg1-...         a Gateway
gke-..., gk3-...                GKE itself
==============================  =======================================================================================

CLUSTER is eight or sixteen characters that are unique to the cluster. The firewall rules, which are in the network,
contain these characters. They are deleted last, so the next run can identify the orphans of an interrupted run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..engine.kinds import Resource
from ..orphans import left_alone
from . import compare
from .kinds import EVERY, LEFT, VERSIONS

Wire = Mapping[str, Any]

VOLUMES = ("disk", "filestore")
"""Kinds of objects that contain data."""

_GLOBAL = ("firewall", "http-health-check")
_FIREWALL = "firewall"
_SERVICE = r"a[0-9a-f]{31,32}"
_CONTROLLERS = re.compile(rf"(k8s\d?|gkegw1|gkemcg1)-.+|{_SERVICE}(-hc)?")
_GKE = re.compile(r"(gke|gk3)-.+")
_OF_GKE = (_FIREWALL, "forwarding-rule", "address")
"""Kinds of objects that GKE itself creates in the network of a cluster, and deletes with the cluster."""
_BALANCER = re.compile(rf"(?:k8s-fw-|k8s-)?({_SERVICE})(?:-http-hc|-hc)?")
_CLUSTERS = (
    re.compile(r"k8s-ig--([0-9a-z]+)"),
    re.compile(r"k8s-fw-l7--([0-9a-z]+)"),
    re.compile(r"k8s-([0-9a-z]{8,16})-node(?:-http)?-hc"),
    re.compile(r"k8s[123]-(?:[a-z0-9]{2,4}-)?([0-9a-z]{8})-.+"),
)

# Dependencies of kinds outside of networks. An object belongs to the cluster only if all its dependencies do. Each kind
# is listed after its dependencies.
_BENEATH: Mapping[str, tuple[str, ...]] = {
    "target-pool": (),
    "backend-service": ("endpoint-group", "instance-group"),
    "url-map": ("backend-service",),
    "target-http-proxy": ("url-map",),
    "target-https-proxy": ("url-map",),
    "forwarding-rule": ("target-pool", "target-http-proxy", "target-https-proxy", "backend-service"),
}
_CHECKS = ("health-check", "http-health-check")
# Fields of a body with the users of the object, not its dependencies.
_USERS = ("users", "usedBy")
_NOT_REFERENCES = (*_USERS, "selfLink", "selfLinkWithId")

_CREATED_BY = "storage_gke_io_created-by"
_DRIVER = "filestore_csi_storage_gke_io"
_INSTANCE_CLUSTER = "storage_gke_io_cluster_name"
_DISK_CLUSTER, _DISK_LOCATION = "goog-k8s-cluster-name", "goog-k8s-cluster-location"
_VOLUME = re.compile(r"pvc-.+")


@dataclass(frozen=True)
class Thing:
    """An object in a project. `parent`: its scope, such as `projects/p/regions/r`. `body`: the response of its API."""

    kind: str
    parent: str
    name: str
    body: Wire

    @property
    def path(self) -> str:
        return f"{self.parent}/{EVERY[self.kind].collection}/{self.name}"

    @property
    def place(self) -> str:
        """`global`, a region, or a zone."""
        return self.parent.rpartition("/")[2]

    @property
    def title(self) -> str:
        """Return the title and location, for messages."""
        return f"{EVERY[self.kind].title} {self.name}{'' if self.place == 'global' else f' in {self.place}'}"

    @property
    def resource(self) -> Resource:
        """Return the entry of a plan."""
        return {"key": self.path, "kind": self.kind, "name": self.name, "parent": self.parent, "body": {}, "needs": []}

    @property
    def going(self) -> bool:
        """Return True if the object is already being deleted."""
        return "DELETING" in (self.body.get("state"), self.body.get("status"))

    @cached_property
    def needs(self) -> frozenset[str]:
        """The paths of its references."""
        return frozenset(_paths({key: content for key, content in self.body.items() if key not in _NOT_REFERENCES}))

    @cached_property
    def users(self) -> frozenset[str]:
        """The paths of its users, from its own fields."""
        return frozenset(_paths({key: content for key, content in self.body.items() if key in _USERS}))


@dataclass(frozen=True)
class Where:
    """The cluster, and the paths of its network and subnetwork. `is_gone`: True if the cluster is deleted."""

    project: str
    region: str
    cluster: str
    network: str
    subnetwork: str
    is_gone: bool

    def holds(self, thing: Thing) -> bool:
        """Return True if an object is in the network of the cluster."""
        if thing.kind == "filestore":
            networks = thing.body.get("networks") or ()
            return any(compare.reference(interface.get("network"), self.network) for interface in networks)
        return bool({self.network, self.subnetwork} & thing.needs)

    def reaches(self, place: str) -> bool:
        """Return True if the cluster creates objects in a location: its region, its zones, and the global location."""
        return place in ("global", self.region) or place.startswith(f"{self.region}-")


@dataclass(frozen=True)
class Found:
    """Orphans and other objects of a project.

    `ours`: the orphans of the cluster. `left_alone`: a line for each object of another owner that prevents the deletion
    of the network. `kept`: a line for each other object that is kept, but does not prevent it.
    """

    ours: tuple[Thing, ...] = ()
    left_alone: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listing:
    """A call that lists objects of a kind. The objects are in `field`; if the list is `aggregated`, by scope."""

    kind: str
    path: str
    field: str
    aggregated: bool = False

    @property
    def service(self) -> str:
        return EVERY[self.kind].service

    def things(self, answer: Wire) -> Iterator[Thing]:
        """Return the objects of a page."""
        scopes = answer.get("items") or {} if self.aggregated else {"": answer}
        for scope in scopes.values():
            for body in scope.get(self.field) or ():
                path = _path(str(body.get("selfLink") or body["name"]))
                yield Thing(self.kind, path.rsplit("/", 2)[0], path.rpartition("/")[2], body)


def listings(where: Where) -> list[Listing]:
    """Return the calls that list all possible orphans."""
    needed_listings = []
    for kind, listed_kind in LEFT.items():
        base = f"{VERSIONS[listed_kind.service]}/projects/{where.project}"
        if listed_kind.service == "file":
            needed_listings.append(Listing(kind, f"{base}/locations/-/instances", "instances"))
        elif kind in _GLOBAL:
            needed_listings.append(Listing(kind, f"{base}/global/{listed_kind.collection}", "items"))
        else:
            only = f"&filter=labels.{_DISK_CLUSTER}%3D{where.cluster}" if kind == "disk" else ""
            path = f"{base}/aggregated/{listed_kind.collection}?includeAllScopes=true{only}"
            needed_listings.append(Listing(kind, path, listed_kind.collection, aggregated=True))
    return needed_listings


def unreachable(listing: Listing, answer: Wire, where: Where) -> str:
    """Return the unreachable locations that might contain objects of the cluster."""
    locations = [str(location_path).rpartition("/")[2] for location_path in answer.get("unreachable") or ()]
    return ", ".join(location for location in locations if where.reaches(location)) if listing.service == "file" else ""


def sort(things: Iterable[Thing], where: Where, network: Wire) -> Found:
    """Return the orphans of the cluster among all objects of a project. `network`: API response; empty without a
    network."""
    relevant = [thing for thing in things if where.reaches(thing.place) or where.holds(thing)]
    cluster_things = _ours(relevant, where)
    left_lines = [
        _in_network(thing, where) for thing in relevant if thing.path not in cluster_things and _keeps(thing, where)
    ]
    blocked = _drop_blocked(cluster_things, relevant)
    left_lines += [line for thing, line in blocked if where.holds(thing)]
    return Found(
        tuple(cluster_things.values()),
        (*left_lines, *_beside(network, where)),
        tuple(line for thing, line in blocked if not where.holds(thing)),
    )


def needs(things: Sequence[Thing]) -> dict[str, list[str]]:
    """Return the users of each object, by path. Users must be deleted first. Firewall rules are last."""
    paths = {thing.path for thing in things}
    return {
        thing.path: [
            user.path
            for user in things
            if user is not thing
            and (
                thing.path in user.needs
                or user.path in thing.users & paths
                or (thing.kind == _FIREWALL and user.kind not in (_FIREWALL, *VOLUMES))
            )
        ]
        for thing in things
    }


def _ours(relevant: Sequence[Thing], where: Where) -> dict[str, Thing]:
    owned = {thing.path: thing for thing in relevant if _certain(thing, where)}
    names = _Names.of(owned.values())
    for kind, beneath in _BENEATH.items():
        for thing in _others(relevant, kind, owned):
            under = [path for path in thing.needs if _kind(path) in beneath]
            if names.have(thing) or (under and all(path in owned for path in under)):
                owned[thing.path] = thing
    for kind in (*_CHECKS, "address"):
        for thing in _others(relevant, kind, owned):
            users = {user.path for user in relevant if thing.path in user.needs} | thing.users
            if names.have(thing) or (users and users <= owned.keys()):
                owned[thing.path] = thing
    return owned


def _others(relevant: Sequence[Thing], kind: str, cluster_things: Mapping[str, Thing]) -> list[Thing]:
    """Return objects of a kind outside of networks that have a name of a controller and are not yet among the
    orphans."""
    return [
        thing
        for thing in relevant
        if thing.kind == kind and thing.path not in cluster_things and _CONTROLLERS.fullmatch(thing.name)
    ]


def _certain(thing: Thing, where: Where) -> bool:
    """Return True if an object belongs to the cluster by its own properties."""
    labels = thing.body.get("labels") or {}
    if thing.kind == "disk":
        cluster = (labels.get(_DISK_CLUSTER), labels.get(_DISK_LOCATION))
        return cluster == (where.cluster, where.region) and _VOLUME.fullmatch(thing.name) is not None
    if not where.holds(thing):
        return False
    if thing.kind == "filestore":
        return labels.get(_CREATED_BY) == _DRIVER and labels.get(_INSTANCE_CLUSTER, where.cluster) == where.cluster
    return _CONTROLLERS.fullmatch(thing.name) is not None or (where.is_gone and _of_gke(thing))


def _of_gke(thing: Thing) -> bool:
    return thing.kind in _OF_GKE and _GKE.fullmatch(thing.name) is not None


@dataclass(frozen=True)
class _Names:
    """Names of load balancers of Services, and the parts of other names that identify the cluster."""

    balancers: frozenset[str]
    clusters: frozenset[str]

    @classmethod
    def of(cls, things: Iterable[Thing]) -> _Names:
        names = [thing.name for thing in things if thing.kind not in VOLUMES]
        return cls(
            frozenset(name_match[1] for name in names if (name_match := _BALANCER.fullmatch(name))),
            frozenset(
                name_match[1] for name in names for pattern in _CLUSTERS if (name_match := pattern.fullmatch(name))
            ),
        )

    def have(self, thing: Thing) -> bool:
        if thing.name in self.balancers:
            return True
        cluster_ids = {cluster_ids[1] for pattern in _CLUSTERS if (cluster_ids := pattern.fullmatch(thing.name))}
        cluster_ids |= {thing.name.rpartition("--")[2]} if "--" in thing.name else set()
        cluster_ids |= {node[1]} if (node := re.fullmatch(r"k8s-([0-9a-z]{8,16})-.+", thing.name)) else set()
        return bool(cluster_ids & self.clusters)


def _keeps(thing: Thing, where: Where) -> bool:
    """Return True if an object of another owner prevents the deletion of the network."""
    return where.holds(thing) and (where.is_gone or not _GKE.fullmatch(thing.name))


def _drop_blocked(cluster_things: dict[str, Thing], relevant: Sequence[Thing]) -> list[tuple[Thing, str]]:
    """Remove objects with other users from the orphans. Return each with a message."""
    dropped: list[tuple[Thing, str]] = []
    while True:
        users = {
            thing.path: min(
                (thing.users - cluster_things.keys())
                | {user.path for user in relevant if user.path not in cluster_things and thing.path in user.needs},
                default="",
            )
            for thing in cluster_things.values()
        }
        blocked = [thing for thing in cluster_things.values() if users[thing.path]]
        if not blocked:
            return dropped
        for thing in blocked:
            del cluster_things[thing.path]
            line = (
                f"{thing.title} is used by {users[thing.path]}, which is not of this cluster, so it stays. Delete what "
                "uses it, or take it out of there"
            )
            dropped.append((thing, line))


def _in_network(thing: Thing, where: Where) -> str:
    return left_alone(thing.title, f"is in the network {_name(where.network)} and was not created by the cluster")


def _beside(network: Wire, where: Where) -> list[str]:
    """Return the other users of the network: unmanaged subnetworks and peerings."""
    remnants = [
        f"subnetwork {_name(path)} in {path.split('/')[3]}"
        for path in map(_path, network.get("subnetworks") or ())
        if path != where.subnetwork
    ]
    remnants += [
        f"the peering {peering['name']}"
        for peering in network.get("peerings") or ()
        if not str(peering["name"]).startswith("filestore-peer-")
    ]
    why = f"is in the network {_name(where.network)} and was not created by this collection"
    return [left_alone(peering, why) for peering in remnants]


def _paths(value: Any) -> Iterator[str]:
    """Yield all paths of objects in a value."""
    if isinstance(value, Mapping):
        for element in value.values():
            yield from _paths(element)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _paths(element)
    elif isinstance(value, str) and "projects/" in value and not value.startswith("{"):
        yield _path(value)


def _path(link: str) -> str:
    """Return the part of a link or a path from its project on."""
    return link[link.index("projects/") :]


def _kind(path: str) -> str:
    collection = path.split("/")[-2]
    return next((kind for kind, listed_kind in LEFT.items() if listed_kind.collection == collection), "")


def _name(path: str) -> str:
    return path.rpartition("/")[2]
