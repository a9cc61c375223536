# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whatever clusters show: there is a status, it is valid, order has no effect, nor has a second observation."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Component, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Placement
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.inference_cluster import gateway_address
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import remember
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Objects
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.written import (
    cache_phase,
    inference_cluster,
    inference_gateway,
    model_cache,
    model_deployment,
    model_service,
    replica_objects,
    replica_state,
)
from ansible_collections.modelplane.fleet.tests.written import endpoint_status as model_endpoint
from ansible_collections.modelplane.fleet.tests.written import replica_status as model_replica
from hypothesis import given
from hypothesis import strategies as st

NOW, LATER = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
REPLICAS = [seen.replica(), seen.replica(gang=True, copies=2)]
REPLICAS[1]["metadata"]["name"] = "qwen3-8b-1111111111"
ENDPOINT = seen.endpoint("https://api.example.com/v1", credential={"apiKey": {"secretRef": {"name": "key"}}})
PVC, JOB = seen.cache_parts()
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": seen.WORKLOADS, "labels": {"modelplane.ai/replica": "qwen3-8b-6e732e38e8"}},
}
OBSERVED = {"Deployment", "LeaderWorkerSet", "HTTPRoute", "Service", "EndpointSlice", "BackendTLSPolicy"}
COMPOSED = [[value for value in replica_objects(wire) if value["kind"] in OBSERVED] for wire in REPLICAS]
WORKLOADS = [*COMPOSED[0], *COMPOSED[1], PVC, JOB, POD, seen.edge_gateway()]
ROUTE = seen.route()
TLS = seen.endpoint_parts(seen.endpoint("https://api.example.com/v1"))
KEYED = [value for value in seen.endpoint_parts(ENDPOINT) if value["kind"] in OBSERVED]
CONTROL = [*KEYED, *TLS, ROUTE, *seen.control_gateway()]

SCALARS = st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(["", "True", "False", "Bound", "x" * 600])
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
)


def known(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A map with such fields, each of which may be missing or anything."""
    return ANY | st.fixed_dictionaries({}, optional={key: ANY | value for key, value in fields.items()})


CONDITIONS = st.lists(
    known(
        type=st.sampled_from(["Available", "Ready", "Accepted", "Complete", "Failed", "PodScheduled", "Progressing"]),
        status=st.sampled_from(["True", "False", "Unknown"]),
        reason=st.sampled_from(["Unschedulable", "Other"]),
        message=st.text(max_size=5),
        observedGeneration=st.integers(0, 3),
    ),
    max_size=3,
)
ENDED = known(reason=st.just("OOMKilled"), exitCode=st.integers(0, 3))
CONTAINERS = st.lists(
    known(
        name=st.just("engine"),
        state=known(waiting=known(reason=st.just("CrashLoopBackOff"), message=st.text(max_size=3)), terminated=ENDED),
        lastState=known(terminated=ENDED),
    ),
    max_size=2,
)
STATUS = known(
    conditions=CONDITIONS,
    parents=st.lists(known(conditions=CONDITIONS), max_size=2),
    ancestors=st.lists(known(conditions=CONDITIONS), max_size=2),
    addresses=st.lists(known(type=st.just("Hostname"), value=st.just("a.example")), max_size=2),
    phase=st.just("Bound"),
    observedGeneration=st.integers(0, 3),
    availableReplicas=st.integers(0, 3),
    readyReplicas=st.integers(0, 3),
    containerStatuses=CONTAINERS,
    initContainerStatuses=CONTAINERS,
)


@st.composite
def sightings(draw: st.DrawFn, objects: Sequence[Any]) -> list[Any]:
    """Some of the objects, with any status, any generation, now and then any labels, annotations and spec."""
    shown = []
    for value in draw(st.permutations(objects)):
        if draw(st.integers(0, 5)) == 0:
            continue
        odd = deepcopy(value)
        odd["status"] = draw(STATUS)
        odd["metadata"]["generation"] = draw(ANY)
        if draw(st.integers(0, 9)) == 0:
            odd["metadata"][draw(st.sampled_from(["labels", "annotations"]))] = draw(ANY)
            odd["spec"] = draw(ANY)
        shown.append(odd)
    return shown


PAST = known(
    conditions=CONDITIONS,
    clusters=st.lists(
        known(name=st.just("east"), phase=st.sampled_from(["Ready", "Failed"]), artifact=ANY), max_size=2
    ),
    gpuPools=st.lists(known(name=st.just("gpu-l4"), nodes=st.integers(0, 3)), max_size=2),
    gateway=known(address=st.just("192.0.2.1")),
    address=st.just("192.0.2.2"),
)

Reported = dict[str, dict[str, Any]]


def evaluate(workload: ObservedCluster | None, control: Objects | None, before: Any, now: str) -> Reported:
    """The status of everything. `before` gives the statuses of before by name, or anything at all for each of them."""

    def past(name: str) -> Any:
        return before.get(name) if isinstance(before, dict) and "cluster" in before else before

    def unready(index: int) -> Any:
        wire = REPLICAS[index]
        return remember(replica_state(wire, COMPOSED[index], workload), past(f"replica {index}"))

    states = {index: unready(index) for index in (0, 1)}
    placements = [Placement("ml-team", "qwen3-8b", "east", index, (), "kept") for index in states]
    phase = cache_phase(seen.CACHE, "east", PVC["metadata"]["name"], JOB["metadata"]["name"], workload, past("cache"))
    address = gateway_address(past("cluster"), workload)
    resolution = seen.resolution(True, False)
    found = {
        "cluster": inference_cluster(
            seen.EKS, pools=None, observed=workload, gateway_address=address, previous=past("cluster")
        ),
        "gateway": inference_gateway(seen.GATEWAY, control, Component(True), previous=past("gateway")),
        "endpoint": model_endpoint(ENDPOINT, KEYED, control, previous=past("endpoint")),
        "tls": model_endpoint(seen.endpoint(), TLS, control, previous=past("tls")),
        "service": model_service(seen.SERVICE, resolution, [ROUTE], "192.0.2.1", control, previous=past("service")),
        "cache": model_cache(seen.CACHE, ["east"], {"east": phase}, False, previous=past("cache")),
        "deployment": model_deployment(
            seen.deployment(2),
            placements,
            None,
            {("east", index): state for index, state in states.items()},
            previous=past("deployment"),
        ),
        **{
            f"replica {index}": model_replica(REPLICAS[index], state, past(f"replica {index}"))
            for index, state in states.items()
        },
    }
    return {name: status.wire(past(name), 1, now) for name, status in found.items()}


RESOURCES = {
    "cluster": seen.EKS,
    "gateway": seen.GATEWAY,
    "endpoint": seen.endpoint(),
    "tls": seen.endpoint(),
    "service": seen.SERVICE,
    "cache": seen.CACHE,
    "deployment": seen.deployment(2),
    "replica 0": REPLICAS[0],
    "replica 1": REPLICAS[1],
}


@given(sightings(WORKLOADS), sightings(CONTROL), st.booleans(), st.booleans())
def test_any_observation_has_a_status(
    workloads: list[Any], controls: list[Any], provisioned: bool, stack: bool
) -> None:
    def observation(turn: int) -> tuple[ObservedCluster, Objects]:
        parts = Component(provisioned), Component(stack)
        return ObservedCluster("", *parts, Objects(workloads[::turn])), Objects(controls[::turn])

    once = evaluate(*observation(1), None, NOW)
    assert evaluate(*observation(-1), None, NOW) == once
    assert evaluate(*observation(1), once, LATER) == once
    for name, status in once.items():
        api.parse({**RESOURCES[name], "status": status})
    silent = evaluate(seen.silent(), None, once, LATER)
    assert evaluate(seen.silent(), None, silent, "2028-01-01T00:00:00Z") == silent
    for index in (0, 1):
        assert silent[f"replica {index}"] == once[f"replica {index}"]
    assert silent["cache"] == once["cache"]
    assert evaluate(None, None, once, LATER)["cluster"] == once["cluster"]


@given(PAST, st.booleans())
def test_any_past_has_a_future(past: Any, answers: bool) -> None:
    workload = seen.cluster(*WORKLOADS) if answers else seen.silent()
    control = Objects(CONTROL) if answers else None
    evaluate(workload, control, past if isinstance(past, dict) else None, NOW)
