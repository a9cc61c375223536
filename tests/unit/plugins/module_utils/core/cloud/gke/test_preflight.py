# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Problems and warnings of a planned cluster, with Google Cloud as the cases describe it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import EVERYWHERE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.demand import zones_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.preflight import (
    Found,
    Types,
    accelerator_types,
    judge,
    machine_types,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.preflight import Verdict
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    PROJECT,
    gke,
    gpu,
    system,
)

REGION = "us-central1"
ZONES = tuple(f"{REGION}-{letter}" for letter in "abcf")
PLENTY = (1000.0, 0.0)
WE = "fleet@my-project.iam.gserviceaccount.com"


def everywhere(zones: tuple[str, ...] = ZONES, **described: Any) -> dict[str, Any]:
    return dict.fromkeys(zones, described)


def machine(cpus: int, accelerator: str = "", count: int = 1, **more: Any) -> dict[str, Any]:
    own = [{"guestAcceleratorType": accelerator, "guestAcceleratorCount": count}] if accelerator else []
    return everywhere(guestCpus=cpus, architecture="X86_64", **({"accelerators": own} if own else {}), **more)


MACHINES: Types = {
    "e2-standard-4": machine(4),
    "e2-standard-8": machine(8),
    "g2-standard-8": machine(8, "nvidia-l4"),
    "n1-standard-8": machine(8),
    "n2-standard-8": machine(8),
    "t2a-standard-4": everywhere(guestCpus=4, architecture="ARM64"),
    "x9a-standard-4": everywhere(guestCpus=4, architecture="ARM64"),
    "x9-gpu-8g": machine(96, "nvidia-x900", 8),
}
ACCELERATORS: Types = {
    "nvidia-l4": everywhere(maximumCardsPerInstance=8),
    "nvidia-tesla-t4": everywhere(maximumCardsPerInstance=4),
    "nvidia-x900": everywhere(maximumCardsPerInstance=16),
}
GOOD = Found(
    apis=frozenset(rights.APIS),
    permissions=frozenset(rights.EVERY),
    node_account=plan(gke(), PROJECT)["node_account"],
    zones=(*ZONES, "us-east4-a"),
    machines=MACHINES,
    accelerators=ACCELERATORS,
    versions=("1.36.2-gke.1120000", "1.35.3-gke.1389000", "1.34.6-gke.1154000"),
    quotas={
        REGION: dict.fromkeys(("CPUS", "N2_CPUS", "NVIDIA_L4_GPUS", "NVIDIA_T4_GPUS", "IN_USE_ADDRESSES"), PLENTY),
        EVERYWHERE: dict.fromkeys(("GPUS_ALL_REGIONS", "NETWORKS"), PLENTY),
    },
)
THERE = {"version": "1.35.3-gke.1389000", "pools": frozenset({"system", "gpu-l4"})}


def judged(*pools: dict[str, Any], found: Found = GOOD, **spec: Any) -> Verdict:
    return judge(plan(gke(*pools, **spec), PROJECT), found, WE)


def problem(verdict: Verdict) -> str:
    """The only problem."""
    assert len(verdict.problems) == 1, verdict.problems
    return verdict.problems[0]


def warning(verdict: Verdict) -> str:
    """The only thing that is reported, a warning."""
    assert (verdict.problems, len(verdict.warnings)) == ((), 1), verdict
    return verdict.warnings[0]


def test_all_is_well() -> None:
    assert judged() == judged(gpu(), system()) == Verdict((), ())


def test_nothing_is_reported_of_what_could_not_be_read() -> None:
    assert judged(found=Found()) == Verdict((), ())
    assert judged(found=replace(GOOD, machines={}, accelerators={}, versions=None, quotas={})) == Verdict((), ())


def test_what_is_asked_for() -> None:
    desired = plan(gke(gpu(), gpu("more"), system()), PROJECT)
    assert machine_types(desired) == ["e2-standard-8", "g2-standard-8"]
    assert accelerator_types(desired) == ["nvidia-l4"]
    assert zones_of("us-central1", ["us-central1-b", "us-central12-a", "us-central1-a"]) == list(ZONES[:2])


# APIs and rights


def test_an_api_that_the_plan_enables_may_be_disabled() -> None:
    without = frozenset(rights.APIS) - {"file.googleapis.com"}
    assert judged(found=replace(GOOD, apis=without)) == Verdict((), ())


def test_the_right_to_enable_apis_is_needed_where_one_is_to_be_enabled() -> None:
    few = frozenset(rights.EVERY) - {rights.ENABLING}
    assert judged(found=replace(GOOD, permissions=few)) == Verdict((), ())
    without = frozenset(rights.APIS) - {"file.googleapis.com"}
    assert problem(judged(found=replace(GOOD, permissions=few, apis=without))) == (
        f"project my-project: {WE} may not: serviceusage.services.enable. Give it the role "
        "roles/serviceusage.serviceUsageAdmin, or one of your own that has these permissions"
    )
    assert "serviceusage.services.enable" in problem(judged(found=replace(GOOD, permissions=few, apis=None)))


def test_the_right_to_make_keys_is_needed_where_one_is_to_be_made() -> None:
    found = replace(GOOD, permissions=frozenset(rights.EVERY) - set(rights.MAKING[rights.KEYS]))
    assert "may not: iam.serviceAccountKeys.create, " in problem(judged(found=found))
    assert judge(plan(gke(), PROJECT), found, WE, key=False) == Verdict((), ())


def test_no_right_at_all() -> None:
    verdict = judged(found=replace(GOOD, permissions=frozenset()))
    assert f"Give it the roles {', '.join(rights.MAKING)}, or" in problem(verdict)
    assert "removing the cluster needs more" in verdict.warnings[0]
    assert not any(role in verdict.warnings[0] for role in rights.MAKING)


def test_a_cluster_that_is_there_needs_no_right_to_make_it() -> None:
    found = replace(GOOD, permissions=frozenset(rights.EVERY) - {"container.clusters.create"}, **THERE)
    assert "may not: container.clusters.create" in warning(judged(found=found))


def test_resource_manager_takes_all_permissions_at_once() -> None:
    assert len(rights.EVERY) <= 100


@pytest.mark.parametrize(
    ("field", "words"), [("node_account_there", "does not exist"), ("may_act_as_it", "roles/iam.serviceAccountUser")]
)
def test_the_account_of_nodes(field: str, words: str) -> None:
    default = {"nodeServiceAccount": "default"}
    found = replace(GOOD, node_account=rights.default_account("7"), **{field: False})
    assert words in problem(judged(found=found, **default))
    assert "7-compute@developer.gserviceaccount.com" in problem(judged(found=found, **default))
    assert words in warning(judged(found=replace(found, **THERE), **default))


def test_an_account_of_nodes_that_is_created_with_the_cluster() -> None:
    """It may be missing; who creates nodes has to have a right in the project then."""
    assert judged(found=replace(GOOD, node_account_there=False)) == Verdict((), ())
    found = replace(GOOD, node_account_there=False, permissions=GOOD.permissions - {rights.ACTING})
    assert "roles/iam.serviceAccountUser in the project, or set nodeServiceAccount" in problem(judged(found=found))
    assert "may not have nodes run as" in problem(judged(found=replace(GOOD, may_act_as_it=False)))


def test_an_account_of_nodes_that_a_user_named() -> None:
    email = "nodes@my-project.iam.gserviceaccount.com"
    found = replace(GOOD, node_account=email, node_account_there=False)
    assert f"{email}, which nodes run as, does not exist. Create it" in problem(
        judged(found=found, nodeServiceAccount=email)
    )


# Places and versions


def test_a_region_that_does_not_exist_is_all_that_is_reported_of_places() -> None:
    verdict = judge(plan(gke(system(), region="us-cntral1"), PROJECT), replace(GOOD, machines={"e2-standard-8": {}}))
    assert problem(verdict) == (
        "spec.region: there is no region us-cntral1 in Google Cloud for project my-project. Did you mean us-central1?"
    )


@pytest.mark.parametrize("version", ["1.35", "1.35.3", "1.36"])
def test_versions_that_are_offered(version: str) -> None:
    assert judged(kubernetesVersion=version) == Verdict((), ())


@pytest.mark.parametrize(
    ("version", "offered"),
    [("1.37", "1.34, 1.35, 1.36"), ("1.340", "1.34, 1.35, 1.36"), ("1.35.1", "1.35.3")],
)
def test_versions_that_are_not(version: str, offered: str) -> None:
    assert problem(judged(kubernetesVersion=version)).endswith(f"It offers {offered}")


def test_a_cluster_that_is_newer_already() -> None:
    newest = replace(GOOD, versions=GOOD.versions[:1], **THERE)
    assert judged(kubernetesVersion="1.34", found=newest) == Verdict((), ())
    assert "1.37" in problem(judged(kubernetesVersion="1.37", found=replace(GOOD, **THERE)))


# Machines


def test_arm_machines_that_are_known() -> None:
    assert judged(system(machineType="t2a-standard-4"), gpu()) == judged(system(machineType="n2-standard-8"), gpu())


@pytest.mark.parametrize(
    ("pool", "line"),
    [
        (
            system(machineType="x9a-standard-4"),
            "x9a-standard-4 has Arm processors, and is not among the Arm machines that are known",
        ),
        (system(machineType="x9-gpu-8g"), "x9-gpu-8g comes with GPUs, and the pool has none"),
        (gpu(machineType="x9-gpu-8g"), "x9-gpu-8g comes with 8 nvidia-x900, and the pool asks for 1 nvidia-l4"),
        (gpu(machineType="n2-standard-8"), "n2-standard-8 takes no GPUs"),
        (
            gpu(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 8}),
            "8 nvidia-tesla-t4 are asked for, and a machine takes 4",
        ),
    ],
)
def test_machines_that_do_not_do(pool: dict[str, Any], line: str) -> None:
    assert f"node pool {pool['name']}: {line}" in problem(judged(pool))


def test_gpus_that_are_added_have_to_be_in_the_zones() -> None:
    t4 = gpu(machineType="n1-standard-8", gpu={"acceleratorType": "nvidia-tesla-t4"})
    assert judged(t4) == Verdict((), ())
    found = replace(GOOD, accelerators={"nvidia-tesla-t4": everywhere(ZONES[:1], maximumCardsPerInstance=4)})
    assert problem(judged(t4, found=found)) == (
        "node pool gpu-l4: nvidia-tesla-t4 is not offered in us-central1-c. It is offered in us-central1-a"
    )
    assert "nvidia-tesla-t4 is not offered in us-central1. Take another" in problem(
        judged(t4, found=replace(GOOD, accelerators={"nvidia-tesla-t4": {}}))
    )


def test_a_pool_without_zones_goes_where_its_machines_are() -> None:
    few = {**MACHINES, "e2-standard-4": {ZONES[0]: {"guestCpus": 4}}}
    assert judged(found=replace(GOOD, machines=few)) == Verdict((), ())


def test_a_pool_that_is_there_is_only_warned_of() -> None:
    found = replace(GOOD, machines={**MACHINES, "g2-standard-8": {}}, **THERE)
    assert "there is no machine type g2-standard-8" in warning(judged(found=found))


# Quotas. There are three zones with controllers, one node in each at the start and two at most; and the GPU pool is in
# two zones, with one to eight nodes in each.


def with_quota(metric: str, limit: float, usage: float = 0.0, place: str = REGION, **more: Any) -> Found:
    return replace(GOOD, quotas={**GOOD.quotas, place: {**GOOD.quotas[place], metric: (limit, usage)}}, **more)


@pytest.mark.parametrize(
    ("metric", "place", "line"),
    [
        ("CPUS", REGION, "node pools system: start with 12, and the quota CPUS of project my-project in us-central1"),
        ("NVIDIA_L4_GPUS", REGION, "node pools gpu-l4: start with 2, and the quota NVIDIA_L4_GPUS of project"),
        ("GPUS_ALL_REGIONS", EVERYWHERE, "node pools gpu-l4: start with 2, and the quota GPUS_ALL_REGIONS of project"),
        ("IN_USE_ADDRESSES", REGION, "node pools system, gpu-l4: start with 5, and the quota IN_USE_ADDRESSES"),
        ("SSD_TOTAL_GB", REGION, "node pools system, gpu-l4: start with 500, and the quota SSD_TOTAL_GB"),
    ],
)
def test_quotas_that_do_not_do(metric: str, place: str, line: str) -> None:
    said = warning(judged(found=with_quota(metric, 1, place=place)))
    assert said.startswith(line)
    assert said.endswith("or lower nodeCount and minNodeCount")


def test_a_family_with_a_quota_of_its_own() -> None:
    n2 = system(machineType="n2-standard-8")
    assert "the quota N2_CPUS" in warning(judged(n2, gpu(), found=with_quota("N2_CPUS", 4)))
    assert judged(n2, gpu(), found=with_quota("CPUS", 4)) == Verdict((), ())


def test_what_is_in_use_counts() -> None:
    said = warning(judged(found=with_quota("NVIDIA_L4_GPUS", 64, 63)))
    assert (
        "start with 2, and the quota NVIDIA_L4_GPUS of project my-project in us-central1 is 64, of which 63 are" in said
    )


def test_what_is_there_does_not_start_again_and_may_grow() -> None:
    found = with_quota("NVIDIA_L4_GPUS", 8, 8, **THERE)
    assert "may grow to 16, and the quota NVIDIA_L4_GPUS" in warning(judged(found=found))
    assert judged(found=with_quota("NVIDIA_L4_GPUS", 16, 16, **THERE)) == Verdict((), ())


def test_networks() -> None:
    assert "the quota NETWORKS of project my-project is 5, and 5 are in use" in warning(
        judged(found=with_quota("NETWORKS", 5, 5, EVERYWHERE))
    )
    assert judged(found=with_quota("NETWORKS", 5, 5, EVERYWHERE, **THERE)) == Verdict((), ())
