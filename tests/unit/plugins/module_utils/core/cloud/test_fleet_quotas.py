# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Quotas of accounts that were observed, against the clusters of a whole fleet."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import (
    EVERYWHERE,
    Account,
    ClusterThere,
    Offering,
    PoolThere,
    Quota,
    Reservation,
    Zone,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import registry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.fleet_quotas import problems
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks import clusters as eks
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke import clusters as gke

DAY = "2026-11-27"
CODE = "L-DB2E81BA"
BLOCK = "cr-0123456789abcdef0"
Object = dict[str, Any]


def cloud_name(cluster: str, cloud: str = "eks") -> str:
    return registry.BY_NAME[cloud].cluster_name("modelplane-system", cluster)


def account(limit: int = 48, there: dict[str, dict[str, int]] | None = None, **more: Any) -> Account:
    """An account in us-west-2 with a limit of vCPUs of G instances, and the nodes of clusters that exist."""
    found = [
        ClusterThere(name=cloud_name(name), pools=[PoolThere(name=pool, nodes=nodes) for pool, nodes in pools.items()])
        for name, pools in (there or {}).items()
    ]
    quota = Quota(code=CODE, name="G instances", unit="vCPUs", limit=limit, observed=more.pop("quota_of", DAY))
    given: dict[str, Any] = {"account": "1234", "region": "us-west-2", "clusters": found, **more}
    given.setdefault("offerings", [Offering(machine="g6.12xlarge", vcpus=48, observed=DAY)])
    return Account(provider="eks", observed=DAY, quotas=[quota], **given)


def fleet(*names: str, **pool: Any) -> list[Object]:
    """Clusters with a node of 48 vCPUs each, and at most that."""
    one = {"name": "gpu-l4", "className": "l4", "zones": ["us-west-2a"], "nodeCount": 1, **pool}
    return [eks.inference_class(), *(eks.inference_cluster(one, name=name) for name in names)]


def found(
    resources: list[Object], *accounts: Account, today: str = DAY, seen: dict[str, dict[str, int]] | None = None
) -> list[Problem]:
    return problems(resources, accounts, seen or {}, today)


def test_each_fits_alone_and_both_do_not() -> None:
    assert found(fleet("a"), account()) == []
    assert found(fleet("a", "b"), account(96)) == []
    (problem,) = found(fleet("b", "a"), account())
    assert (problem.severity, problem.ref, problem.path) == (
        "error",
        Ref("InferenceCluster", "", "b"),
        "spec.nodePools[0]",
    )
    assert problem.message == (
        'node pools a/gpu-l4 (48), b/gpu-l4 (48): start with 96 vCPUs, and the quota "G instances" (L-DB2E81BA) of '
        "account 1234 in us-west-2 is 48 vCPUs, as observed on 2026-11-27"
    )
    assert problem.hint == (
        "Ask for more in Service Quotas (EC2), or lower nodeCount. Then run modelplane.fleet.check, which observes the "
        "account again"
    )


def test_without_accounts_nothing_is_known() -> None:
    assert found(fleet("a", "b")) == []


def test_what_runs_comes_first_and_is_counted_once() -> None:
    there = {"z": {"gpu-l4": 1, "system": 2}}
    assert found(fleet("a", "z"), account(96, there)) == []
    (problem,) = found(fleet("a", "z"), account(95, there))
    assert (problem.severity, problem.ref) == ("error", Ref("InferenceCluster", "", "a"))
    assert "node pools gpu-l4: start with 48 vCPUs" in problem.message
    assert "is 95 vCPUs, of which 48 are in use" in problem.message


def test_a_new_pool_of_a_cluster_that_exists_is_a_warning() -> None:
    (problem,) = found(fleet("a"), account(47, {"a": {"system": 2}}))
    assert problem.severity == "warning"
    assert "start with 48 vCPUs" in problem.message


def test_growth_is_a_warning() -> None:
    (problem,) = found(fleet("a", nodeCount=1, minNodeCount=1, maxNodeCount=3), account(96))
    assert problem.severity == "warning"
    assert "may grow to 144 vCPUs" in problem.message


@pytest.mark.parametrize(("today", "severity"), [("2026-12-04", "error"), ("2026-12-05", "warning")])
def test_an_old_observation_is_a_warning(today: str, severity: str) -> None:
    (problem,) = found(fleet("a"), account(0), today=today)
    assert problem.severity == severity
    assert "as observed on 2026-11-27" in problem.message


def test_a_cluster_that_answers_exists() -> None:
    (problem,) = found(fleet("a", "b"), account(), seen={"b": {"gpu-l4": 1}})
    assert (problem.ref, problem.severity) == (Ref("InferenceCluster", "", "a"), "error")
    assert "of which 48 are in use" in problem.message


def test_the_account_of_a_cluster_is_the_one_that_holds_it() -> None:
    full, empty = account(0, {"a": {}}), account(1000, {"b": {}}, account="5678")
    assert [each.ref and each.ref.name for each in found(fleet("a", "b"), full, empty)] == ["a"]
    assert found(fleet("c"), full, empty) == [], "it may be in either"
    assert found(fleet("a"), account(0, region="us-east-1")) == []


def offering(*zones: str) -> dict[str, Any]:
    """Zones of the region, and those of them that have the machine."""
    return {
        "zones": [Zone(name=f"us-west-2{letter}", id=f"usw2-az{letter}") for letter in "ab"],
        "offerings": [Offering(machine="g6.12xlarge", vcpus=48, zones=list(zones), observed=DAY)],
    }


def test_a_zone_without_the_machines() -> None:
    assert found(fleet("a"), account(96, **offering("usw2-aza"))) == []
    (problem,) = found(fleet("a"), account(96, **offering("usw2-azb")))
    assert (problem.severity, problem.path) == ("error", "spec.nodePools[0]")
    assert problem.message == ("pool gpu-l4: g6.12xlarge is not offered in us-west-2a, as observed on 2026-11-27")
    assert problem.hint.startswith("It is offered in us-west-2b. Then run modelplane.fleet.check")
    (problem,) = found(fleet("a"), account(96, **offering()))
    assert "g6.12xlarge is not offered in us-west-2, as" in problem.message
    (problem,) = found(fleet("a"), account(96, {"a": {"system": 1}}, **offering()))
    assert problem.severity == "warning", "the cluster exists"
    assert found(fleet("a"), account(96, {"a": {"gpu-l4": 1}}, **offering())) == [], "and so does the pool"


def test_zones_that_were_not_read() -> None:
    unread = Offering(machine="g6.12xlarge", vcpus=48, observed=DAY)
    assert found(fleet("a"), account(96, **{**offering(), "offerings": [unread]})) == []
    assert found(fleet("a"), account(96, **{**offering(), "zones": []})) == []
    assert found(fleet("a"), account(96, **offering("usw2-unnamed"))) == []


def test_a_capacity_block_counts_against_no_quota_and_is_shared() -> None:
    resources = fleet("a", "b", capacityBlock={"capacityReservationId": BLOCK}, zones=["us-west-2a"])
    assert found(resources, account(0)) == []
    block = Reservation(id=BLOCK, machine="g6.12xlarge", zone="usw2-az1", state="active", total=2, free=1, observed=DAY)
    assert found(resources, account(0, reservations=[block.model_copy(update={"free": 2})])) == []
    (problem,) = found(resources, account(0, reservations=[block]))
    assert (problem.severity, problem.ref) == ("error", Ref("InferenceCluster", "", "b"))
    assert problem.message == (
        f"node pools a/gpu-l4 (1), b/gpu-l4 (1): start with 2 machines, and reservation {BLOCK} of account 1234 has 2 "
        "machines, of which 1 are in use, as observed on 2026-11-27"
    )


def test_a_cluster_that_is_written_itself() -> None:
    (problem,) = found([eks.eks(eks.gpu("one", nodeCount=1), eks.gpu("two", nodeCount=1))], account())
    assert problem.ref == Ref("EKSCluster", "modelplane-system", "eks-us-west")
    assert problem.path == "spec.nodePools[1]"


def project(region: str, limits: dict[str, tuple[int, int]]) -> Account:
    quotas = [Quota(code=code, limit=limit, used=used, observed=DAY) for code, (limit, used) in limits.items()]
    zones = [Zone(name=f"us-central1-{letter}", id=letter) for letter in "abcf"] if region != EVERYWHERE else []
    offerings = [Offering(machine="g2-standard-48", vcpus=48, observed=DAY)]
    return Account(
        provider="gke", account="prod", region=region, observed=DAY, quotas=quotas, offerings=offerings, zones=zones
    )


def test_quotas_of_a_region_and_of_all_regions_of_a_project() -> None:
    resources = [eks.inference_class(provider="GKE"), gke.inference_cluster(name="a"), gke.inference_cluster(name="b")]
    here = project("us-central1", {"NVIDIA_L4_GPUS": (12, 8)})
    everywhere = project(EVERYWHERE, {"GPUS_ALL_REGIONS": (7, 0)})
    both = found(resources, here, everywhere)
    assert [(each.severity, each.ref and each.ref.name) for each in both] == [("warning", "b"), ("warning", "b")]
    assert "start with 8, and the quota NVIDIA_L4_GPUS of project prod in us-central1 is 12, of which 8" in (
        both[0].message
    )
    assert "start with 8, and the quota GPUS_ALL_REGIONS of project prod for all regions is 7" in both[1].message
    assert found(resources, project("us-central1", {"NVIDIA_L4_GPUS": (64, 8)}), project(EVERYWHERE, {})) == []


def test_a_project_that_is_written_is_the_one() -> None:
    resources = [eks.inference_class(provider="GKE"), gke.inference_cluster(name="a", project="test")]
    assert found(resources, project("us-central1", {"NVIDIA_L4_GPUS": (0, 0)})) == []
