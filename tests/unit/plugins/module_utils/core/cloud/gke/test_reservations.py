# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Findings about the reservations that node pools name, with Google Cloud as the cases describe it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.preflight import (
    Found,
    judge,
    reservation_paths,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    PROJECT,
    gke,
    gpu,
)

A, B, C = (f"us-central1-{letter}" for letter in "abc")
OWN = f"projects/{PROJECT}/reservations/l4"
MORE = f"projects/{PROJECT}/reservations/more"
SHARED = "projects/capacity-prod/reservations/l4"


def reserved(machine: str = "g2-standard-8", count: int = 4, used: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "status": "READY",
        "specificReservationRequired": True,
        "specificReservation": {
            "count": str(count),
            "inUseCount": str(used),
            "assuredCount": str(count),
            "instanceProperties": {"machineType": machine},
        },
        **more,
    }


def pool(*names: str, name: str = "gpu", zones: tuple[str, ...] = (A,), **more: Any) -> dict[str, Any]:
    affinity = {"consumeReservationType": "SPECIFIC_RESERVATION", "values": list(names or ("l4",))}
    return gpu(name, zones=list(zones), reservationAffinity=affinity, maxNodeCount=2, **more)


def said(*pools: dict[str, Any], there: frozenset[str] = frozenset(), **found: Any) -> tuple[str, str]:
    """Return problems and warnings. `found`: by `own`, `more` and `shared`."""
    paths = {"own": OWN, "more": MORE, "shared": SHARED}
    reservations = {paths[key]: by_zone for key, by_zone in found.items()}
    verdict = judge(plan(gke(*pools), PROJECT), Found(reservations=reservations, pools=there))
    return "\n".join(verdict.problems), "\n".join(verdict.warnings)


def test_the_reservations_of_a_plan_are_known_by_their_paths() -> None:
    block = "projects/capacity-prod/reservations/l4/reservationBlocks/one"
    desired = plan(gke(pool("l4", block), pool("l4", name="b"), gpu("plain")), PROJECT)
    assert reservation_paths(desired) == [SHARED, OWN]


def test_a_reservation_that_has_what_the_pool_needs() -> None:
    assert said(pool(), own={A: reserved()}) == ("", "")
    # What others reserved under the same name elsewhere does no harm.
    assert said(pool(), own={A: reserved(), C: reserved("a2-highgpu-1g")}) == ("", "")


def test_what_could_not_be_read_is_not_judged() -> None:
    assert said(pool()) == ("", "")
    assert said(pool("l4", "more"), own={A: reserved(count=0)}) == ("", "")


@pytest.mark.parametrize(
    ("desired", "found", "says"),
    [
        (
            pool(),
            {"own": {}},
            f"reservation l4 does not exist in project {PROJECT}. Create it for g2-standard-8 in {A}",
        ),
        (pool(), {"own": {B: reserved()}}, f"reservation l4 is in {B}, and the pool in {A}. Set zones of the pool to"),
        (
            pool(zones=(A, B)),
            {"own": {A: reserved()}},
            f"zone {B} has none of the reservations l4: no node starts there. Leave the zone out",
        ),
        (
            pool(),
            {"own": {A: reserved("g2-standard-48")}},
            f"reservation l4 in {A} is for g2-standard-48, and the pool has g2-standard-8",
        ),
        (pool(), {"own": {A: reserved(status="CREATING")}}, f"reservation l4 in {A} is CREATING, so no node starts"),
        (
            pool(),
            {"own": {A: reserved(used=4)}},
            f"starts with 1 nodes in {A}, and of the 4 machines of reservation l4 there 0 are free. Lower nodeCount",
        ),
        (
            pool("l4", "more", nodeCount=2),
            {"own": {A: reserved(used=4)}, "more": {A: reserved(used=3)}},
            f"starts with 2 nodes in {A}, and of the 8 machines of reservation l4, more there 1 are free",
        ),
        (
            pool(SHARED),
            {"shared": {A: reserved(shareSettings={"shareType": "LOCAL"})}},
            f"is of project capacity-prod, which does not share it. Have it shared with {PROJECT}",
        ),
        (
            pool(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2}),
            {"own": {A: reserved("n1-standard-8")}},
            "has machines with no accelerators, and the pool asks for 2 nvidia-tesla-t4",
        ),
    ],
)
def test_reservations_that_do_not_do(desired: dict[str, Any], found: dict[str, Any], says: str) -> None:
    problems, warnings = said(desired, **found)
    assert problems.startswith("node pool gpu: ")
    assert says in problems
    assert (len(problems.splitlines()), warnings) == (1, "")
    # Nothing is created for a pool that exists.
    problems, _warnings = said(desired, there=frozenset({"gpu"}), **found)
    assert problems == ""


def test_accelerators_of_a_reservation() -> None:
    desired = pool(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2})
    properties = {
        "machineType": "n1-standard-8",
        "guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 2}],
    }
    specific = {"count": "4", "inUseCount": "0", "instanceProperties": properties}
    assert said(desired, own={A: reserved(specificReservation=specific)}) == ("", "")


def test_pools_share_what_a_reservation_has_left() -> None:
    first, second = pool(nodeCount=2), pool(name="second", nodeCount=2)
    assert said(first, second, own={A: reserved(count=4)})[0] == ""
    problems, _warnings = said(first, second, own={A: reserved(count=3)})
    assert problems.startswith(f"node pool second: starts with 2 nodes in {A}, and of the 3 machines")
    assert "there 1 are free" in problems
    # The nodes of a pool that exists are among those in use.
    assert said(first, second, there=frozenset({"gpu"}), own={A: reserved(count=4, used=2)})[0] == ""


@pytest.mark.parametrize(
    ("reservation", "says"),
    [
        (
            reserved(count=1),
            f"may grow to 2 nodes in {A}, and reservation l4 has 1 machines there: more will not start",
        ),
        (reserved(specificReservationRequired=False), "is not for named use only (specificReservationRequired)"),
    ],
)
def test_what_works_at_first_is_a_warning(reservation: dict[str, Any], says: str) -> None:
    problems, warnings = said(pool(), own={A: reservation})
    assert (problems, says in warnings) == ("", True)


def test_only_the_shape_of_a_reservation_is_unknown() -> None:
    aggregate = {"status": "READY", "specificReservationRequired": True, "aggregateReservation": {}}
    assert said(pool(), own={A: aggregate}) == ("", "")
    assert said(pool(SHARED), shared={A: reserved(shareSettings={"shareType": "SPECIFIC_PROJECTS"})}) == ("", "")
