# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Claims on nodes whose devices lack attributes or capacities, and claims with more devices than one can have."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.binding import bind
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Constraint,
    Deployment,
    Member,
    Options,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.placement import schedule
from ansible_collections.modelplane.fleet.tests.oracle.binding import heterogeneous, trial
from ansible_collections.modelplane.fleet.tests.oracle.binding.simulated import Simulation
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling import fleets
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.scheduling.fleets import GPU

OPTIONS = Options("Devices")


def device(
    name: str, count: int = 8, memory: str = "", device_class: str = GPU, driver: str = GPU, **attributes: Any
) -> Device:
    return Device.from_wire(
        {
            "name": name,
            "driver": driver,
            "deviceClassName": device_class,
            "count": count,
            "attributes": attributes,
            "capacity": {"memory": {"value": memory}} if memory else {},
        }
    )


H100 = device("h100", memory="80Gi", productName={"string": "H100"}, sxm={"bool": True})
BARE = device("bare", memory="80Gi")
ODD = device("odd", memory="80Gi", productName={"int": 7})


def planned(deployment: Deployment, *devices: Device, running: list[Replica] | None = None) -> Schedule:
    clusters = [fleets.cluster("east", fleets.pool("gpu", 2, *devices))]
    existing = running or []
    return bind(schedule([deployment], clusters, existing, OPTIONS), clusters, existing, OPTIONS)


def asking(*selectors: str, count: int = 1) -> Deployment:
    return fleets.deployment("qwen", 1, fleets.standalone(fleets.ask(count, *selectors)))


def entries(decided: Schedule) -> list[dict[str, Any]]:
    return [
        dict(entry)
        for placement in decided.placements
        for engine in placement.engines
        for member in engine.members
        for entry in member.device_requests
    ]


PRODUCT = f'device.attributes["{GPU}"].productName == "H100"'
ELSEWHERE = 'device.attributes["roce.example.com"].zone == "a"'
MEMORY = fleets.at_least("40Gi")


@pytest.mark.parametrize(
    ("devices", "selector"),
    [
        ((H100, BARE), PRODUCT),
        ((H100, BARE), f'device.attributes["{GPU}"].sxm'),
        ((H100, device("small")), MEMORY),
        ((device("near", **{"roce.example.com/zone": {"string": "a"}}), BARE), ELSEWHERE),
        ((H100, replace(BARE, device_class_name="other.example.com")), PRODUCT),
    ],
    ids=["attribute", "bool", "capacity", "domain", "class of the same driver"],
)
def test_a_claim_tests_for_what_devices_of_its_node_lack(devices: tuple[Device, ...], selector: str) -> None:
    [entry] = entries(planned(asking(selector), *devices))
    assert entry["guarded"] is True
    assert entry["selectors"][0] == {"cel": selector}, "the selectors of a ModelReplica are those of the deployment"


@pytest.mark.parametrize(
    ("devices", "selector"),
    [
        ((H100,), PRODUCT),
        ((H100, device("h200", productName={"string": "H200"})), PRODUCT),
        ((H100, BARE), f'has(device.attributes["{GPU}"].productName) && {PRODUCT}'),
        ((H100, BARE), f'device.driver == "{GPU}"'),
        ((H100, fleets.nic()), PRODUCT),
    ],
    ids=["one kind", "all have it", "tested", "driver", "synthetic"],
)
def test_a_claim_that_cannot_fail_is_composed_as_it_is_written(devices: tuple[Device, ...], selector: str) -> None:
    [entry] = entries(planned(asking(selector), *devices))
    assert "guarded" not in entry


def test_a_running_replica_keeps_its_claim() -> None:
    deployment = asking(PRODUCT)
    [before] = fleets.replicas_of(planned(deployment, H100))
    [entry] = entries(planned(deployment, H100, BARE, running=[before]))
    assert "guarded" not in entry
    [guarded] = fleets.replicas_of(planned(deployment, H100, BARE))
    [entry] = entries(planned(deployment, H100, running=[guarded]))
    assert entry["guarded"] is True
    [entry] = entries(planned(asking(PRODUCT, "true"), H100, BARE, running=[before]))
    assert entry["guarded"] is True, "an edit replaces the pods anyway"


def test_a_device_on_which_a_selector_fails_in_another_way_excludes_its_node() -> None:
    selector = f'device.attributes["{GPU}"].productName.startsWith("H")'
    [entry] = entries(planned(asking(selector), H100, BARE))
    assert entry["guarded"] is True
    decided = planned(asking(selector), H100, ODD)
    assert decided.placements == ()
    [reason] = [str(refusal) for pending in decided.pending for refusal in pending.refusals]
    assert "request gpu: kube-scheduler binds no pod on a node where a selector fails on a device" in reason
    assert "device odd" in reason
    first = f'has(device.attributes["{GPU}"].sxm)'
    assert len(entries(planned(asking(first, selector), H100, ODD))) == 1


def test_a_running_replica_stays_where_a_selector_fails() -> None:
    deployment = asking(f'device.attributes["{GPU}"].productName.startsWith("H")')
    running = fleets.replicas_of(planned(deployment, H100))
    assert len(planned(deployment, H100, ODD, running=running).placements) == 1


@pytest.mark.parametrize(("count", "cards", "placed"), [(8, 24, True), (8, 25, False), (1, 31, True), (1, 32, False)])
def test_constraints_on_more_devices_than_a_claim_can_have(count: int, cards: int, placed: bool) -> None:
    root = "resource.kubernetes.io/pcieRoot"
    gpus = device("gpu", 8, **{root: {"string": "r"}})
    nics = device("nic", 56, device_class="dra.net", driver="dra.net", **{root: {"string": "r"}})
    requests = (fleets.ask(count), fleets.ask(cards, 'device.driver == "dra.net"', name="nic"))
    member = Member("Standalone", 1, requests, (Constraint(root),))
    deployment = fleets.deployment("qwen", 1, replace(fleets.standalone(), members=(member,)))
    decided = planned(deployment, gpus, nics)
    assert bool(decided.placements) is placed
    if not placed:
        [reason] = [str(refusal) for pending in decided.pending for refusal in pending.refusals]
        assert f"constraints join requests gpu, nic, which need {count + cards} devices" in reason
        assert "a ResourceClaim has at most 32 (AllocationResultsMaxSize)" in reason
    loose = replace(deployment.engines[0], members=(replace(member, constraints=()),))
    assert planned(replace(deployment, engines=(loose,)), gpus, nics).placements


@pytest.mark.parametrize("number", range(40))
def test_a_scheduler_that_fails_as_kubernetes_does_binds_every_pod(number: int) -> None:
    for order in range(3):
        tried = trial.plan(heterogeneous.generate(1, number), f"h{number}")
        left = Simulation(tried.clusters).bind(tried.loads, random.Random(order))
        assert left == [] or tried.may_strand


def test_large_pods_and_devices_without_attributes_are_among_the_fleets() -> None:
    members = [
        member.device_requests
        for number in range(40)
        for placement in trial.plan(heterogeneous.generate(1, number), "h").placements
        for engine in placement.engines
        for member in engine.members
    ]
    assert sum(any(entry.get("guarded") for entry in requests) for requests in members) >= 10
    assert sum(sum(entry["count"] for entry in requests) > 32 for requests in members) >= 5
