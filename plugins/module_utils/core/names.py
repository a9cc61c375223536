# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of composed objects, and labels to find them.

Names are deterministic. They start with readable text and end with a unique hash.

If the parts are DNS labels (RFC 1123, at most 63 characters), the name is a DNS label too. `child_name` keeps dots.
Names of possible Services and LeaderWorkerSets start with a letter and have no dots (RFC 1035), independent of the name
of the object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Protocol

LABEL_LIMIT = 63
"""Longest DNS label and longest label value, in characters (RFC 1123, Kubernetes "Labels and Selectors")."""

FILE_LIMIT = 255
"""Longest name of a file, in bytes (Linux, NAME_MAX). The name of an object can have 253 characters, and the name of
its file also contains the kind."""

REPLICA_LIMIT = 58
"""Longest replica name. "-pool", the longest suffix of a replica's objects, then fits into 63 characters."""

GANG_LIMIT = 49
"""Longest LeaderWorkerSet name W.

The LeaderWorkerSet controller names leader pods `W-<group>` and gives each group a StatefulSet of that same name. The
StatefulSet controller labels its pods with `controller-revision-hash: <StatefulSet>-<hash>`; the hash has up to 10
characters and an engine has up to 64 copies, hence groups 0 to 63: 63 - len("-63") - len("-") - 10 = 49. Pod
names `W-<group>-<worker>` (workers 1 to 63), which are host names too, and the headless Service `W` are shorter.
"""

# The labels by which composed objects are found again, and the mark of all that this collection manages.
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "modelplane.fleet"
FIELD_MANAGER = "modelplane.fleet"
"""Field manager of server-side apply."""
RESERVED_PREFIX = "modelplane.ai/"
NAMESPACE_LABEL = "modelplane.ai/namespace"
PUBLISHED_LABEL = "modelplane.ai/published"
DEPLOYMENT_LABEL = "modelplane.ai/deployment"
REPLICA_LABEL = "modelplane.ai/replica"
CLUSTER_LABEL = "modelplane.ai/cluster"
REPLICA_INDEX_LABEL = "modelplane.ai/replica-index"
SERVICE_LABEL = "modelplane.ai/service"
ENDPOINT_LABEL = "modelplane.ai/endpoint"
CACHE_LABEL = "modelplane.ai/modelcache"
GATEWAY_LABEL = "modelplane.ai/gateway"
OVERFLOW_LABEL = "modelplane.ai/overflow"
POOL_LABEL = "modelplane.ai/pool"
"""On nodes: the name of the node pool, selected on by every engine pod."""
DRAIN_TAINT = "modelplane.ai/drain"
"""Key of the taint on clusters that are drained on request."""
PRIORITY_ANNOTATION = "modelplane.ai/priority"
PREEMPTED_ANNOTATION = "modelplane.ai/preempted-by"
"""On a ModelReplica that is kept until another replica serves: the preempting deployment (namespace/name)."""
NO_NODE_ANNOTATION = "modelplane.ai/no-node-on"
"""On a ModelReplica: excluded pools (cluster/pool), because a pod of the replica found no node there earlier."""
ANNOTATIONS = {
    PRIORITY_ANNOTATION: "ModelDeployment",
    PREEMPTED_ANNOTATION: "ModelReplica",
    NO_NODE_ANNOTATION: "ModelReplica",
}
"""All annotations with a meaning for a kind of the fleet, with this kind."""
SYSTEM_NAMESPACE = "modelplane-system"
"""Namespace of the fleet's own objects, on the control cluster and on inference clusters."""

_WORKLOADS = "mp"
_CHILD_DIGITS = 5
_WIDE_DIGITS = 10
_HASH = re.compile(rf"-[0-9a-f]{{{_WIDE_DIGITS}}}$")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Labelled(Protocol):
    """Resource with labels."""

    @property
    def name(self) -> str:
        """Name of the cluster."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the cluster, as in its manifest."""


def all_labels(cluster: Labelled) -> dict[str, str]:
    """Return the labels of a cluster for selectors: the labels of its manifest, and its name as the cluster label."""
    return {**cluster.labels, CLUSTER_LABEL: cluster.name}


def is_dns_label(name: str) -> bool:
    """Return True if a name is a DNS label (RFC 1123). Fleet names must be DNS labels."""
    return bool(_DNS_LABEL.fullmatch(name))


def child_name(*segments: str, limit: int = LABEL_LIMIT) -> str:
    """Return the parts joined with "-", cut to `limit`, with the first 5 hex digits of the SHA-256 of the uncut text.

    With the default limit, the result equals that of the reference implementation. The hash is always appended.
    """
    full = "-".join(segments)
    return _cut(full, full, limit, _CHILD_DIGITS)


def joined_name(*segments: str) -> str:
    """Return the parts joined with "-", as in a child name, with a hash that is unique for these parts.

    `child_name` hashes the joined text, and "a-b" with "c" has the same joined text as "a" with "b-c". No name contains
    "/".
    """
    return _cut("-".join(segments), "/".join(segments), LABEL_LIMIT, _WIDE_DIGITS)


def replica_name(namespace: str, deployment: str, cluster: str, index: int) -> str:
    """Return the name of the replica `index` of a deployment on a cluster, at most 58 characters.

    Unlike in the reference implementation, the hash includes the namespace, so that equal deployment names in two
    namespaces do not conflict. It has 40 bits instead of 20, so that a thousand replicas of one deployment do not
    conflict.
    """
    return _cut(_service_prefix(deployment), f"{namespace}/{deployment}/{cluster}/{index}", REPLICA_LIMIT, _WIDE_DIGITS)


def replica_stem(name: str) -> str:
    """Return the common name of all replicas of a deployment, without the hash, or "" for other names."""
    return name[:-_WIDE_DIGITS] if _HASH.search(name) else ""


def object_prefix(replica: str) -> str:
    """Return the prefix of the names of a replica's objects: the replica's name, if a Service can have this name.

    A replica that a user wrote can have any name that Kubernetes allows for a custom resource: up to 253 characters,
    with dots, and with a leading digit. Such a name is converted and hashed.
    """
    if len(replica) <= REPLICA_LIMIT and _SERVICE_NAME.fullmatch(replica):
        return replica
    return _cut(_service_prefix(replica), replica, REPLICA_LIMIT, _WIDE_DIGITS)


def gang_name(replica: str, engine: str) -> str:
    """Return the name of the LeaderWorkerSet of an engine, at most 49 characters (see GANG_LIMIT).

    Its hash has 40 bits, because the cut name might not contain the hash of the replica's name.
    """
    full = f"{replica}-{engine}"
    return _cut(full, full, GANG_LIMIT, _WIDE_DIGITS)


@lru_cache(maxsize=1 << 10)
def workload_namespace(namespace: str) -> str:
    """Return the namespace on inference clusters that holds a fleet namespace's composed objects."""
    return child_name(_WORKLOADS, namespace)


def is_fleet_namespace(name: str) -> bool:
    """Return True if a fleet composes objects in this namespace of an inference cluster."""
    return name == SYSTEM_NAMESPACE or name.startswith(f"{_WORKLOADS}-")


def label_value(name: str) -> str:
    """Return an object's name as the value of a label: a name of up to 63 characters, or its child name."""
    return name if len(name) <= LABEL_LIMIT else child_name(name)


def file_name(name: str, ending: str) -> str:
    """Return the name of a file. If the name with its ending exceeds FILE_LIMIT, it is cut and hashed."""
    limit = FILE_LIMIT - len(ending)
    return f"{name if len(name) <= limit else _cut(name, name, limit, _WIDE_DIGITS)}{ending}"


def _cut(text: str, hashed: str, limit: int, digits: int) -> str:
    digest = sha256(hashed.encode()).hexdigest()[:digits]
    return f"{text[: limit - digits - 1].rstrip('-.')}-{digest}"


def _service_prefix(name: str) -> str:
    """Return the name with only valid characters of a Service name, starting with a letter (RFC 1035 label)."""
    label = name.replace(".", "-")
    return label if label[:1].isalpha() else f"m-{label}"
