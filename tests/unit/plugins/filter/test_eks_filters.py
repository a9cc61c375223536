# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter that plans an EKS cluster, as a function."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter import eks_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan
from ansible_collections.modelplane.fleet.tests.unit.plugins.filter.test_filters import tagged, types_of
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks

planned = eks_plan.FilterModule().filters()["eks_plan"]


def test_plans_are_plain() -> None:
    cidrs = ["192.0.2.0/24"]
    given = {
        "zones": ["us-west-2a", "us-west-2b", "us-west-2c"],
        "tags": {"cost": 7},
        "addons": {"coredns": None},
        "public_access_cidrs": cidrs,
    }
    found = planned(tagged(eks()), tagged("production"), tagged(given))
    assert found == plan(eks(), "production", Options(tags={"cost": "7"}, public_access_cidrs=cidrs))
    assert types_of(found) == {dict, list, str, int, bool, type(None)}
    assert planned(eks()) == plan(eks())


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "text": (("eks-us-west",), "the input must be of kind EKSCluster"),
    "options": ((eks(), "default", ["tags"]), "the options a mapping"),
    "unknown option": ((eks(), "default", {"zone": []}), "options.zone is not known. Did you mean zones?"),
    "tags": ((eks(), "default", {"tags": ["a"]}), "options.tags must be a mapping"),
    "addons": ((eks(), "default", {"addons": ["a"]}), "options.addons must be a mapping"),
    "zones": ((eks(), "default", {"zones": "us-west-2a"}), "options.zones must be a list"),
    "ranges": ((eks(), "default", {"public_access_cidrs": "192.0.2.0/24"}), "public_access_cidrs must be a list"),
    "an addon": ((eks(), "default", {"addons": {"coredns": "v1"}}), "addons.coredns: Must be a mapping"),
    "another kind": (({**eks(), "kind": "GKECluster"},), "this EKSCluster cannot be built"),
    "nothing": (({},), "this EKSCluster cannot be built"),
    "errors": ((eks(region="oregon"),), "spec.region: Is no name of an AWS region"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_planned(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        planned(*given)
    assert message in str(refused.value)
