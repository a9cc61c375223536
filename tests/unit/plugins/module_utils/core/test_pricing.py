# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of prices of nodes, of the price catalog, and of what a plan costs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import prices as gke_prices
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import cost as cost_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, PlanError, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import (
    Catalogue,
    PriceBook,
    PricingError,
    future_classes,
    future_entries,
    machines_of,
    money,
    read_catalogue,
    rounded,
    updated,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import Source
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core import little_fleet

TWO_ZONES = {"zones": ["us-west-2a", "us-west-2b"]}
DAY = {"asOf": "2026-11-01", "source": "a test"}


def catalogue(*entries: dict[str, str], currency: str = "USD") -> Catalogue:
    """Return a catalogue as it is read from a file."""
    text = yaml.safe_dump({"currency": currency, "prices": [{**DAY, **entry} for entry in entries]})
    return read_catalogue(Source("prices.yaml", text.encode()))


def eks(region: str = "us-west-2", machine: str = "g6.xlarge", **entry: str) -> dict[str, str]:
    place = {} if "zone" in entry else {"region": region}
    return {"provider": "EKS", "machine": machine, **place, **entry}


def inference_class(name: str = "l4", gpus: int = 1, **spec: Any) -> api.Resource:
    provisioning = {"provider": "EKS", "eks": {"instanceType": "g6.xlarge", "accelerator": {"type": "l4", "count": 1}}}
    device = {"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com", "count": gpus}
    return api.parse(
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceClass",
            "metadata": {"name": name},
            "spec": {"provisioning": provisioning, "devices": [device], **spec},
        }
    )


def cluster(name: str = "west", *pools: dict[str, Any]) -> Any:
    found = pools or ({},)
    return api.parse(
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceCluster",
            "metadata": {"name": name},
            "spec": {
                "cluster": {"source": "EKS", "eks": {"region": "us-west-2"}},
                "nodePools": [
                    {"name": f"gpu{number or ''}", "className": "l4", "zones": ["us-west-2a"], **pool}
                    for number, pool in enumerate(found)
                ],
            },
        }
    )


def deployment(replicas: int = 1, gpus: int = 1, name: str = "qwen", **spec: Any) -> api.Resource:
    document = yaml.safe_load(little_fleet.DEPLOYMENT)
    document["metadata"]["name"] = name
    document["spec"] |= {"replicas": replicas, **spec}
    template = document["spec"]["template"]["spec"]
    del template["clusterSelector"], template["modelCacheRef"]
    template["engines"][0]["members"][0]["nodeSelector"]["devices"][0]["count"] = gpus
    return api.parse(document)


def price(pool: dict[str, Any], prices: Catalogue | None, *classes: api.Resource) -> str | None:
    """Return the price of a node of a pool."""
    book = PriceBook({each.name: each for each in classes or (inference_class(),)}, prices)  # type: ignore[misc]
    fleet = cluster("west", pool)
    found = book.node_price(fleet, fleet.spec.node_pools[0])
    return str(found.per_hour) if found else None


def planned(*resources: api.Resource, prices: Catalogue | None = None) -> Plan:
    return plan(resources, catalogue=prices)


def shown(decided: Plan, before: str = "") -> list[str]:
    cost = plan_output.document(decided).cost
    return cost_output.table(cost, cost_output.before(before, cost.currency) if cost and before else None)


@pytest.mark.parametrize(
    ("pool", "entries", "expected"),
    [
        ({}, [eks(onDemand="0.80", spot="0.30")], "0.80"),
        ({"eks": {"capacityType": "SPOT"}}, [eks(onDemand="0.80", spot="0.30")], "0.30"),
        ({"eks": {"capacityType": "SPOT"}}, [eks(onDemand="0.80")], None),
        ({"capacityBlock": {"capacityReservationId": "cr-0a"}}, [eks(onDemand="0.80", reserved="0.50")], "0.50"),
        ({}, [eks(onDemand="0.80"), eks(zone="us-west-2a", onDemand="0.90")], "0.90"),
        (TWO_ZONES, [eks(onDemand="0.80"), eks(zone="us-west-2b", onDemand="0.90")], "0.90"),
        (TWO_ZONES, [eks(zone="us-west-2b", onDemand="0.90")], None),
        ({}, [eks(region="us-east-1", onDemand="0.80")], None),
        ({}, [eks(machine="g6.2xlarge", onDemand="0.80")], None),
        ({}, [], None),
    ],
)  # fmt: skip
def test_prices_of_the_catalogue(pool: dict[str, Any], entries: list[dict[str, str]], expected: str | None) -> None:
    assert price(pool, catalogue(*entries)) == expected


@pytest.mark.parametrize(
    ("pricing", "expected"),
    [
        ({"onDemand": "0.10"}, "0.10"),
        ({"spot": "0.10"}, "0.80"),
        ({"onDemand": "0.10", "locations": [{"region": "us-west-2", "onDemand": "0.20"}]}, "0.20"),
        ({"onDemand": "0.10", "locations": [{"region": "us-west-2", "spot": "0.20"}]}, "0.10"),
        ({"locations": [{"region": "us-west-2", "onDemand": "0.2"}, {"zone": "us-west-2a", "onDemand": "0.3"}]}, "0.3"),
        ({"locations": [{"region": "us-east-1", "onDemand": "0.20"}]}, "0.80"),
    ],
)  # fmt: skip
def test_prices_of_a_class_win(pricing: dict[str, Any], expected: str) -> None:
    priced = inference_class(pricing={"currency": "USD", "asOf": "2026-11-01", **pricing})
    assert price({}, catalogue(eks(onDemand="0.80")), priced) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("currency: USD\nprices:\n- {provider: EKS, machine: a, region: b, spot: 1.5, asOf: 2026-11-01, source: s}\n",
         'prices.yaml:3, prices[0].spot: Must be text, is a decimal number (got 1.5). Quote it: "1.5"'),
        ("currency: USD\nprices:\n- {provider: EKS, machine: a, region: b, spot: true, asOf: 2026-11-01, source: s}\n",
         'prices.yaml:3, prices[0].spot: Must be text, is true or false (got true). It must be an amount of zero'),
        ("currency: usd\nprices: []\n", "prices.yaml:1, currency: Must be three capital letters such as USD"),
        ("currency: USD\nprices:\n- {provider: AWS, machine: a, region: b, spot: '1', asOf: 2026-11-01, source: s}\n",
         "prices.yaml:3, prices[0].provider: Is no cloud of a fleet (got \"AWS\"). One of EKS, GKE."),
        ("currency: USD\nprices:\n- {provider: EKS, machine: a, spot: '1', asOf: 2026-11-01, source: s}\n",
         "prices.yaml:3, prices[0]: Exactly one of region and zone must be given. "
         "A price of a zone wins over the one of its region."),
        ("currency: USD\nprices:\n"
         "- {provider: EKS, machine: a, region: b, spot: '1', asOf: 2026-11-01, source: s}\n"
         "- {provider: EKS, machine: a, region: b, spot: '2', asOf: 2026-11-01, source: s}\n",
         "prices.yaml:4, prices[1].spot: Duplicates prices[0]. Remove one."),
        ("- 1\n", "prices.yaml:1: Must be a mapping with currency and prices. Write currency and prices,"),
        ("a: [\n", "prices.yaml:"),
        ("", "prices.yaml: Is empty. Write currency and prices, or have the playbook modelplane.fleet.prices write"),
        ("# none yet\n", "prices.yaml: Is empty. Write currency and prices,"),
        ("{}\n---\n{}\n", "prices.yaml: Must contain one document, but contains 2."),
        ("currency: USD\nprices:\n- {provider: EKS, machine: a, region: b, spot: '1', asOf: 2026-02-30, source: s}\n",
         'prices.yaml:3, prices[0].asOf: Must be a day of the calendar such as 2026-11-20 (got "2026-02-30").'),
    ],
)  # fmt: skip
def test_errors_of_a_catalogue_have_their_place(text: str, line: str) -> None:
    with pytest.raises(PricingError) as caught:
        read_catalogue(Source("prices.yaml", text.encode()))
    assert str(caught.value).startswith(line)


def test_all_entries_of_a_catalogue_are_checked_whatever_is_wrong_with_others() -> None:
    text = """currency: usd
prices:
- {provider: EKS, machine: a, region: b, spot: true, asOf: 2026-11-01, source: s}
- {provider: AWS, machine: a, region: b, zone: c, asOf: 2026-11-01, source: s}
- {provider: AWS, machine: a, spot: 1, asOf: 2026-11-01, source: s}
- {provider: EKS, machine: a, spot: '1', zone: 1, asOf: 2026-11-01, source: s}
"""
    with pytest.raises(PricingError) as caught:
        read_catalogue(Source("prices.yaml", text.encode()))
    assert {(each.line, each.path) for each in caught.value.problems} == {
        (1, "currency"),
        (3, "prices[0].spot"),
        (4, "prices[1].provider"),
        (4, "prices[1]"),
        (5, "prices[2].provider"),
        (5, "prices[2]"),
        (5, "prices[2].spot"),
        (6, "prices[3].zone"),
    }
    messages = [each.message for each in caught.value.problems if each.path == "prices[1]"]
    assert len(messages) == 2, "two places, and no price"


def test_the_example_is_a_catalogue_whose_prices_name_their_sources() -> None:
    path = Path(__file__).parents[5] / "docs/cost/prices.yaml"
    example = read_catalogue(Source("prices.yaml", path.read_bytes()))
    assert {(entry.provider, entry.region) for entry in example.prices} == {
        ("EKS", "us-west-2"),
        ("GKE", "us-central1"),
    }
    assert all(" at " in entry.source for entry in example.prices)


def test_a_fleet_has_one_currency() -> None:
    euros = inference_class(pricing={"currency": "EUR", "asOf": "2026-11-01", "onDemand": "1.00"})
    with pytest.raises(PlanError, match="the price catalog in USD and InferenceClass l4 in EUR"):
        planned(euros, cluster(), prices=catalogue(eks(onDemand="0.80")))
    dollars = little_fleet.CLASS.replace("spec:\n", "spec:\n  pricing: {currency: USD, asOf: 2026-11-01, spot: '1'}\n")
    text = dollars.replace("{name: l4}", "{name: m5}").replace("currency: USD", "currency: EUR")
    problems = [str(problem) for problem in little_fleet.load_text(dollars, text).errors]
    assert problems == [
        "1.yaml:5, document 1, InferenceClass m5, spec.pricing.currency: Differs from InferenceClass l4, whose prices "
        "are in USD (got EUR). Prices of a fleet are compared and added, so all are in one currency."
    ]


def test_without_prices_nothing_is_said_about_cost() -> None:
    decided = planned(inference_class(), cluster(), deployment())
    assert plan_output.document(decided).cost is None
    assert shown(decided) == []


@pytest.mark.parametrize(("gpus", "unavailable"), [(1, ((1,),)), (2, ((1,),)), (1, ((1,), (1,))), (1, ((2,),))])
def test_a_node_with_a_tainted_device_is_idle_without_pods(gpus: int, unavailable: tuple[tuple[int, ...], ...]) -> None:
    sizes = {"nodeCount": 2, "minNodeCount": 2, "maxNodeCount": 2}
    decided = planned(
        deployment(1, gpus), inference_class(gpus=2), cluster("west", sizes), prices=catalogue(eks(onDemand="0.80"))
    )
    (west,) = decided.clusters
    observed = replace(west, pools=tuple(replace(pool, unavailable=unavailable) for pool in west.pools))
    cost = cost_output.cost_of(decided.context, [observed], decided.running)
    assert cost
    assert (cost.nodes, cost.idle_nodes) == (2, 1)


def test_cost_of_clusters_and_of_deployments() -> None:
    eight = inference_class(gpus=8)
    fleet = cluster("west", {"nodeCount": 3})
    decided = planned(
        eight, fleet, deployment(1, gpus=2), deployment(1, gpus=4, name="llama"), prices=catalogue(eks(onDemand="8.00"))
    )
    cost = plan_output.document(decided).cost
    assert cost is not None
    assert (cost.per_hour, cost.per_month, cost.nodes, cost.idle_nodes) == ("24.0000", "17520.0000", 3, 2)
    assert {each.name: each.per_hour for each in cost.deployments} == {"llama": "4.0000", "qwen": "2.0000"}
    assert cost.idle_per_hour == "18.0000"
    assert shown(decided) == [
        "COST IN USD   NODES  PER HOUR  PER MONTH",
        "team/llama        -      4.00   2,920.00",
        "team/qwen         -      2.00   1,460.00",
        "cluster west      3     24.00  17,520.00",
        "    2 idle nodes: 2 of pool gpu",
        "all               3     24.00  17,520.00",
        "    18.00 USD per hour is for devices that no deployment claims; 2 nodes",
        "      are idle",
    ]


def test_an_autoscaled_pool_costs_the_nodes_that_pods_need() -> None:
    pool = {"nodeCount": 1, "minNodeCount": 1, "maxNodeCount": 9}
    prices = catalogue(eks(onDemand="1.00"))
    nodes = [
        plan_output.document(planned(inference_class(), cluster("west", pool), deployment(count), prices=prices)).cost
        for count in (0, 1, 4)
    ]
    assert [(each.nodes, each.per_hour) for each in nodes if each] == [(1, "1.0000"), (1, "1.0000"), (4, "4.0000")]


def test_nodes_without_a_price_are_counted_and_not_zero() -> None:
    fleet = cluster("west", {"nodeCount": 2}, {"nodeCount": 3, "eks": {"capacityType": "SPOT"}})
    decided = planned(inference_class(), fleet, deployment(3), prices=catalogue(eks(onDemand="1.00")))
    cost = plan_output.document(decided).cost
    assert cost is not None
    assert (cost.nodes, cost.unpriced_nodes, cost.per_hour) == (5, 3, "2.0000")
    assert [each.unpriced_replicas for each in cost.deployments] == [1]
    assert "cluster west      5    ≥ 2.00  ≥ 1,460.00" in shown(decided)
    only = planned(inference_class(), fleet, prices=catalogue(eks(region="us-east-1", onDemand="1.00")))
    assert plan_output.document(only).cost.per_hour is None  # type: ignore[union-attr]
    assert "cluster west      5   unknown    unknown" in shown(only)


def test_what_a_change_costs() -> None:
    prices = catalogue(eks(onDemand="0.81"))
    pool = {"nodeCount": 1, "minNodeCount": 0, "maxNodeCount": 9}
    first = planned(inference_class(), cluster("west", pool), deployment(1), prices=prices)
    before = api.wire(plan_output.document(first))
    second = planned(inference_class(), cluster("west", pool), deployment(3), prices=prices)
    text = json.dumps(before)
    assert shown(second, text) == [
        "COST IN USD   NODES  PER HOUR  PER MONTH  CHANGE",
        "team/qwen         -      2.43   1,773.90   +1.62",
        "cluster west      3      2.43   1,773.90   +1.62",
        "all               3      2.43   1,773.90   +1.62",
    ]
    assert "+" not in "".join(shown(first, text))
    assert cost_output.before(text, "EUR") is None
    assert cost_output.before("{", "USD") is None
    assert cost_output.before('{"placements": []}', "USD") is None


def test_what_leaves_is_a_part_of_the_change() -> None:
    prices = catalogue(eks(onDemand="0.81"))
    fleet = inference_class(), cluster("west"), deployment(1)
    first = planned(*fleet, cluster("east"), deployment(1, name="old"), prices=prices)
    assert shown(planned(*fleet, prices=prices), json.dumps(api.wire(plan_output.document(first)))) == [
        "COST IN USD   NODES  PER HOUR  PER MONTH  CHANGE",
        "team/qwen         -      0.81     591.30       -",
        "team/old          -      0.00       0.00   -0.81",
        "cluster west      1      0.81     591.30       -",
        "cluster east      0      0.00       0.00   -0.81",
        "all               1      0.81     591.30   -0.81",
    ]


def test_amounts_of_a_column_have_equally_many_digits() -> None:
    eight, pool = inference_class(gpus=8), {"nodeCount": 1, "minNodeCount": 1, "maxNodeCount": 9}
    prices = catalogue(eks(onDemand="0.08"))
    idle = api.wire(plan_output.document(planned(eight, cluster("west", pool), prices=prices)))
    second = planned(eight, cluster("west", pool), deployment(1, gpus=8), deployment(0, name="none"), prices=prices)
    assert shown(second, json.dumps(idle)) == [
        "COST IN USD   NODES  PER HOUR  PER MONTH   CHANGE",
        "team/qwen         -    0.0800      58.40  +0.0800",
        "cluster west      1    0.0800      58.40        -",
        "all               1    0.0800      58.40        -",
    ]
    two = planned(eight, cluster("west"), deployment(1, gpus=1), prices=catalogue(eks(onDemand="8.08")))
    assert shown(two)[1:3] == [
        "team/qwen         -      1.01     737.30",
        "cluster west      1      8.08   5,898.40",
    ]


@pytest.mark.parametrize(("day", "days"), [("2026-08-03", 0), ("2026-08-02", 91), ("2025-11-01", 365)])
def test_old_prices_are_reported(day: str, days: int) -> None:
    prices = catalogue({**eks(onDemand="0.80"), "asOf": day})
    cost = plan_output.document(planned(inference_class(), cluster(), prices=prices)).cost
    text = " ".join(" ".join(cost_output.table(cost, today=date(2026, 11, 1))).split())
    hint = f"the oldest price is of {day}, {days} days ago: update it, by hand or with the playbook"
    assert (hint in text) is bool(days)
    assert ("the oldest price" in text) is bool(days)
    assert "the oldest price" not in " ".join(cost_output.table(cost))


def test_prices_of_the_future_are_reported() -> None:
    known = catalogue(eks(onDemand="1"), {**eks(spot="1"), "asOf": "2026-11-03"})
    assert [str(each) for each in future_entries(known, "prices.yaml", date(2026, 11, 1))] == [
        'prices.yaml, prices[1].asOf: Is in the future (got "2026-11-03"). '
        "Write the day on which the prices were valid."
    ]
    # It may be the day after, where the user is.
    assert not list(future_entries(known, "prices.yaml", date(2026, 11, 2)))
    priced = inference_class(pricing={"currency": "USD", "asOf": "2026-11-03", "onDemand": "1"})
    (found,) = future_classes([priced, cluster()], date(2026, 11, 1))
    assert (found.severity, found.ref, found.path) == ("warning", priced.ref, "spec.pricing.asOf")


@pytest.mark.parametrize(
    ("day", "is_one"),
    [
        ("2026-02-28", True), ("2026-02-29", False), ("2028-02-29", True), ("2000-02-29", True), ("1900-02-29", False),
        ("2026-04-30", True), ("2026-04-31", False), ("2026-12-31", True), ("2026-13-01", False), ("0000-01-01", False),
        ("2026-00-10", False), ("2026-10-00", False), ("2026-1-1", False), ("2026-10-011", False),
    ],
)  # fmt: skip
def test_days_are_those_of_the_calendar(day: str, is_one: bool) -> None:
    priced = {"currency": "USD", "asOf": day, "onDemand": "1"}
    if is_one:
        assert inference_class(pricing=priced)
        assert date.fromisoformat(day)
        return
    with pytest.raises(api.InvalidResource, match="Must be"):
        inference_class(pricing=priced)


def test_machines_of_a_fleet() -> None:
    resources = [inference_class(), cluster("west", {"zones": ["us-west-2b"]}, {}), deployment()]
    assert [(each.name, each.region, each.zones) for each in machines_of(resources, "EKS")] == [
        ("g6.xlarge", "us-west-2", ("us-west-2a", "us-west-2b"))
    ]
    assert machines_of(resources, "GKE") == []


def test_only_the_same_prices_are_replaced() -> None:
    known = catalogue(eks(onDemand="0.80", reserved="0.50"), eks(region="us-east-1", onDemand="0.70"))
    new = catalogue(eks(onDemand="0.90"), eks(zone="us-west-2a", spot="0.20")).prices
    found = updated(known, new)
    assert [(each.region or each.zone, each.on_demand, each.spot, each.reserved) for each in found.prices] == [
        ("us-west-2a", None, "0.20", None),
        ("us-east-1", "0.70", None, None),
        ("us-west-2", None, None, "0.50"),
        ("us-west-2", "0.90", None, None),
    ]
    assert updated(found, new) == found


def test_amounts_are_exact_and_legible() -> None:
    assert money(Fraction("0.1") + Fraction("0.2"), "USD") == "0.30 USD"
    assert [money(Fraction(text)) for text in ("0", "0.0042", "9008.2", "-1.5", "2.675")] == [
        "0.00", "0.0042", "9,008.20", "-1.50", "2.68",
    ]  # fmt: skip
    assert rounded(Fraction(1, 3)) == Decimal("0.3333")


def sku(description: str, nanos: int, unit: str = "h", **more: Any) -> dict[str, Any]:
    money = {"currencyCode": "USD", "units": "0", "nanos": nanos}
    expression = {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": money}]}
    return {
        "description": f"{description} running in Americas",
        "category": {"usageType": "OnDemand"},
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"effectiveTime": "2026-11-01T00:00:00Z", "pricingExpression": expression}],
        **more,
    }


L4 = {
    "name": "g2-standard-8",
    "guestCpus": 8,
    "memoryMb": 32768,
    "accelerators": [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}],
}
L4_SKUS = [
    sku("G2 Instance Core", 25_000_000),
    sku("G2 Instance Ram", 3_000_000, "GiBy.h"),
    sku("Nvidia L4 GPU", 560_000_000),
]


def test_a_machine_type_costs_its_parts() -> None:
    assert gke_prices.machine_price(L4, L4_SKUS, "us-central1", "USD", spot=False) == Decimal("0.856")


@pytest.mark.parametrize(
    ("machine", "skus", "why"),
    [
        ({**L4, "name": "a4-highgpu-8g"}, L4_SKUS, "the SKUs of its family are not known"),
        (L4, L4_SKUS[:2], "no SKU for Nvidia L4 GPU running in"),
        (L4, [*L4_SKUS, sku("Nvidia L4 GPU", 1)], "several prices for Nvidia L4 GPU"),
        (L4, [L4_SKUS[0], sku("G2 Instance Ram", 3), L4_SKUS[2]], "no single price for GiBy.h"),
        ({**L4, "accelerators": [{"guestAcceleratorType": "x"}]}, L4_SKUS, "SKUs of x are not"),
    ],
)  # fmt: skip
def test_a_machine_type_without_a_price_says_why(machine: Any, skus: list[Any], why: str) -> None:
    with pytest.raises(gke_prices.NoPriceError, match=why):
        gke_prices.machine_price(machine, skus, "us-central1", "USD", spot=False)
