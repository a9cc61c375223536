# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of each inference cluster, composed on access because the objects of a large fleet take gigabytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict

from .. import api
from ..compose import replica_objects
from ..compose.model_gateway.mtls import attached
from ..compose.openshift import engine_bindings
from ..compose.pod_security import laxer
from ..wire import Object, identity
from .caches import Staged
from .context import Context
from .model_traffic import ModelTraffic

_PATH, _MODEL = "Path", "Model"

_NEVER_FROZEN = frozenset({"Namespace", "HTTPRoute"})
"""Kinds with changes that restart no pod. A Namespace belongs to all its replicas, and a route to all gateways."""


class Workloads(Mapping[str, tuple[Object, ...]]):
    """Objects of each inference cluster, including clusters without objects.

    They depend only on the result of `inputs`. They are composed at each access and not cached.
    """

    def __init__(
        self,
        context: Context,
        clusters: Iterable[str],
        replicas: Iterable[api.ModelReplica],
        staged: Iterable[Staged],
        models: ModelTraffic | None = None,
        frozen: Iterable[api.ModelReplica] = (),
    ) -> None:
        """`frozen`: replicas that keep the objects of the last build if their cluster is a GitOps cluster."""
        self._composing = context.composing
        self._serves_paths = context.fleet.serves_paths
        self._models = models or ModelTraffic()
        self._replicas: dict[str, list[api.ModelReplica]] = {name: [] for name in sorted(clusters)}
        self._cached: dict[str, list[tuple[str, Sequence[Object]]]] = {name: [] for name in self._replicas}
        for replica in replicas:
            self._replicas[replica.spec.cluster_name].append(replica)
        for cache in staged:
            for name, values in cache.objects.items():
                if name in self._cached:
                    self._cached[name].append((cache.namespace, values))
        self._frozen = {
            (replica.namespace, replica.name): context.kept(replica.ref, replica.spec.cluster_name)
            for replica in frozen
            if context.declared(replica.spec.cluster_name)
        }
        seen = ((name, context.observed_cluster(name)) for name in self._replicas)
        self._sizes: dict[str, int] = {}
        self._openshift = frozenset(name for name, cluster in seen if cluster is not None and cluster.openshift)

    def __getitem__(self, name: str) -> tuple[Object, ...]:
        replicas, cached = self._replicas[name], self._cached[name]
        composed: list[Object] = [value for replica in replicas for value in self._of_replica(replica)]
        parents = self._parents(name)
        if parents != (_PATH,):
            composed = [attached for value in composed for attached in _attached(value, parents)]
        composed += [value for __, values in cached for value in values]
        composed += self._models.objects.get(name, ())
        if name in self._openshift:
            namespaces = {replica.namespace for replica in replicas}
            composed += engine_bindings(namespaces.union(namespace for namespace, __ in cached))
        objects = distinct(composed)
        self._sizes[name] = len(objects)
        return objects

    def _of_replica(self, replica: api.ModelReplica) -> Sequence[Object]:
        composed = replica_objects(replica, self._composing)
        frozen = self._frozen.get((replica.namespace, replica.name))
        if frozen is None:
            return composed
        return [
            *(value for value in composed if identity(value)[1] in _NEVER_FROZEN),
            *(value for value in frozen if identity(value)[1] not in _NEVER_FROZEN),
        ]

    def _parents(self, name: str) -> tuple[str, ...]:
        """Return the modes of the gateways that send requests to replicas of a cluster.

        The mode Model is included only once the ingress gateway listens. Otherwise, the run would wait for a route
        without a gateway.
        """
        hosts = name in self._models.hosts
        if name in self._models.cluster_gateways:
            return (_PATH, _MODEL) if self._serves_paths and not hosts else (_MODEL,)
        return () if hosts else (_PATH,)

    def __iter__(self) -> Iterator[str]:
        return iter(self._replicas)

    def __len__(self) -> int:
        return len(self._replicas)

    def size(self, name: str) -> int:
        """Return the number of objects of a cluster."""
        return self._sizes[name] if name in self._sizes else len(self[name])

    def keep_size(self, name: str, size: int) -> None:
        """Take over a number of objects that is known although they were not composed."""
        self._sizes[name] = size

    def inputs(self, name: str) -> Iterator[str]:
        """Return the texts of all that the objects of a cluster are composed of."""
        yield json.dumps([asdict(self._composing), name in self._openshift, self._cached[name]])
        yield json.dumps([self._parents(name), list(self._models.objects.get(name, ()))])
        for replica in self._replicas[name]:
            yield replica.model_dump_json(by_alias=True, exclude_unset=True)
            yield json.dumps(self._frozen.get((replica.namespace, replica.name)))


def _attached(value: Object, parents: tuple[str, ...]) -> Iterator[Object]:
    """Yield an object of a replica, a route attached to these gateways; one without any leads nowhere."""
    if identity(value)[1] != "HTTPRoute":
        yield value
    elif _MODEL in parents:
        yield attached(value, alone=_PATH not in parents)


def distinct(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Return each object once.

    Several replicas compose the same Namespace. It must admit the pods of all of them.
    """
    unique_objects: dict[tuple[str, str, str], Object] = {}
    for value in objects:
        metadata = value["metadata"]
        key = (value["kind"], metadata.get("namespace", ""), metadata["name"])
        unique_objects[key] = (
            laxer(unique_objects[key], value)
            if key in unique_objects and key[0] == "Namespace"
            else unique_objects.get(key, value)
        )
    return tuple(unique_objects.values())
