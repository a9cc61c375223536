# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of a replica on its inference cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from .. import api, names
from . import constants
from .cache_volume import CacheMount
from .claim import claim_templates
from .control import kept_namespace
from .disaggregation import disaggregate, is_disaggregated, pool_port
from .member import Member, members
from .network import replica_policies
from .options import Options
from .owner import Owner
from .picker import picker_objects
from .pod_security import namespace_labels
from .probes import add_probes
from .routing import http_route, inference_pool
from .termination import engine_budget, stop_gracefully, stream_pause
from .workload import workload

WORKLOADS = frozenset({"Deployment", "LeaderWorkerSet"})
"""Kinds of a replica that have pods."""

_DEFAULTS = Options()
_HASH_DIGITS = 20


def replica_objects(replica: api.ModelReplica, options: Options = _DEFAULTS) -> tuple[dict[str, Any], ...]:
    """Return the objects of a ModelReplica in the order of their application, the Namespace first.

    The result shares nothing with `replica`. The Namespace objects of two replicas in one namespace differ in their Pod
    Security level only (`pod_security.laxer`).
    """
    owner = Owner.of(replica)
    spec = replica.spec
    cache = CacheMount.of(owner.namespace, spec.model_cache_ref)
    claims = []
    workloads = []
    budgets: list[dict[str, Any]] = []
    pods: list[Member] = []
    port = pool_port(spec.engines)
    for engine in spec.engines:
        engine_members = members(owner, engine, cache)
        pods += engine_members
        claims += [template for member in engine_members for template in claim_templates(member)]
        composed = workload(engine_members, engine.copies)
        if spec.serving is not None and is_disaggregated(spec):
            disaggregate(composed, engine_members, engine, spec.serving, options, port)
        add_probes(composed, engine_members, engine)
        stop_gracefully(composed, engine_members, engine, options.stream_grace)
        budgets += engine_budget(composed, engine_members, engine.copies)
        workloads.append(composed)
    pickers = picker_objects(owner, spec, options, stream_pause(workloads, options.stream_grace))
    for value in (*workloads, *pickers):
        if value["kind"] in WORKLOADS:
            value["metadata"]["annotations"] = {constants.SPEC_HASH_ANNOTATION: _spec_hash(value)}
    return (
        workload_namespace(owner.namespace, pods),
        *claims,
        *workloads,
        *budgets,
        inference_pool(owner, port, exported=options.export_pools),
        *pickers,
        *replica_policies(owner, workloads, options, port, linked=is_disaggregated(spec)),
        http_route(owner),
    )


def _spec_hash(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value["spec"], sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]


def workload_namespace(namespace: str, pods: Iterable[Member] = ()) -> dict[str, Any]:
    """Return the Namespace on workload clusters for the objects of a namespace of the fleet, with pods of these
    members."""
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.NAMESPACE_LABEL: names.label_value(namespace),
        **namespace_labels(pods),
    }
    return kept_namespace(names.workload_namespace(namespace), labels)
