# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filters that plan an EKS cluster, as functions."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter import eks_plan, launch_template_data
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan
from ansible_collections.modelplane.fleet.tests.unit.plugins.filter.test_filters import tagged, types_of
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks, gpu

planned = eks_plan.FilterModule().filters()["eks_plan"]
completed = launch_template_data.FilterModule().filters()["launch_template_data"]


def test_plans_are_plain() -> None:
    given = {"zones": ["us-west-2a", "us-west-2b", "us-west-2c"], "tags": {"cost": 7}, "addons": {"coredns": None}}
    found = planned(tagged(eks()), tagged("production"), tagged(given))
    assert found == plan(eks(), "production", Options(tags={"cost": "7"}))
    assert types_of(found) == {dict, list, str, int, bool, type(None)}
    assert planned(eks()) == plan(eks())


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "text": (("eks-us-west",), "the input must be an EKSCluster"),
    "options": ((eks(), "default", ["tags"]), "the options a mapping"),
    "unknown option": ((eks(), "default", {"zone": []}), "options.zone is not known. Did you mean zones?"),
    "tags": ((eks(), "default", {"tags": ["a"]}), "options.tags must be a mapping"),
    "addons": ((eks(), "default", {"addons": ["a"]}), "options.addons must be a mapping"),
    "zones": ((eks(), "default", {"zones": "us-west-2a"}), "options.zones must be a list"),
    "an addon": ((eks(), "default", {"addons": {"coredns": "v1"}}), "addons.coredns: must be a mapping"),
    "another kind": (({**eks(), "kind": "GKECluster"},), "this EKSCluster cannot be built"),
    "nothing": (({},), "this EKSCluster cannot be built"),
    "faults": ((eks(region="oregon"),), "spec.region: is no name of an AWS region"),
}


@pytest.mark.parametrize(("given", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_planned(given: tuple[Any, ...], told: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        planned(*given)
    assert told in str(refused.value)


def test_data_of_launch_templates() -> None:
    template = plan(eks(gpu(instanceType="p4d.24xlarge", fabric="EFA")))["launch_templates"][0]
    found = completed(tagged(template), tagged(["sg-1", "sg-2"]))
    assert types_of(found) == {dict, list, str, int}
    assert [entry["InterfaceType"] for entry in found["NetworkInterfaces"]] == ["efa", *["efa-only"] * 3]
    assert {key: value for key, value in found.items() if key != "NetworkInterfaces"} == template["data"]


WRONG = {
    "no template": (({"data": {}}, ["sg-1"]), "the input must be a launch template of a plan"),
    "one group": (({"data": {}, "network_cards": 1}, "sg-1"), "must be a list of IDs of security groups"),
    "an empty ID": (({"data": {}, "network_cards": 1}, ["sg-1", ""]), "must be a list of IDs of security groups"),
    "no list": (({"data": {}, "network_cards": 1}, None), "must be a list of IDs of security groups"),
}


@pytest.mark.parametrize(("given", "told"), WRONG.values(), ids=WRONG)
def test_what_is_no_launch_template(given: tuple[Any, ...], told: str) -> None:
    with pytest.raises(AnsibleFilterError, match=told):
        completed(*given)
