# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter eks_plan: plain results of Ansible's tagged values, problems as data, readable errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible._internal._datatag._tags import Origin
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter.eks_plan import eks_plan

CLUSTER = Path(__file__).parents[3] / "data" / "eks" / "cluster-efa.yaml"


def tagged(value: Any) -> Any:
    """`value` as it reaches a filter from a playbook: every scalar remembers where it was written."""
    if isinstance(value, dict):
        return Origin(path="/play.yml").tag({tagged(key): tagged(item) for key, item in value.items()})
    if isinstance(value, list):
        return Origin(path="/play.yml").tag([tagged(item) for item in value])
    return Origin(path="/play.yml").tag(value)


def types_of(value: Any) -> set[type]:
    if isinstance(value, dict):
        return {type(value)}.union(*(types_of(part) for entry in value.items() for part in entry))
    if isinstance(value, list):
        return {type(value)}.union(*(types_of(item) for item in value))
    return {type(value)}


def test_a_plan_is_plain_data() -> None:
    found = eks_plan(tagged([yaml.safe_load(CLUSTER.read_text())]))
    assert found["problems"] == []
    assert types_of(found) == {dict, list, str, int, bool}
    assert found["plans"]["eks-frontier"]["cluster"]["version"] == "1.35"


def test_zones_of_ones_own() -> None:
    zones = [f"us-west-2{letter}" for letter in "dabc"]
    found = eks_plan([yaml.safe_load(CLUSTER.read_text())], tagged({"eks-frontier": zones, "other": []}))
    assert found["plans"]["eks-frontier"]["preflight"]["zones"] == zones


def test_problems_are_data() -> None:
    cluster = yaml.safe_load(CLUSTER.read_text())
    cluster["spec"]["networking"]["vpcCidr"] = "10.0.0.0/16"
    found = eks_plan([cluster])
    assert found["plans"] == {}
    assert {(each["cluster"], each["severity"]) for each in found["problems"]} == {("eks-frontier", "error")}
    assert (
        "EKSCluster modelplane-system/eks-frontier, spec.networking.subnetCidrs[0]" in found["problems"][0]["message"]
    )


REFUSED = {
    "text": ("cluster", None, "must be a list of resources"),
    "one resource": ({"kind": "EKSCluster"}, None, "must be a list of resources"),
    "zones as a list": ([], ["us-west-2a"], "zones a mapping"),
    "no spec": ([{"kind": "EKSCluster", "metadata": {"name": "x"}}], None, "a resource is not valid"),
}


@pytest.mark.parametrize(("resources", "zones", "words"), REFUSED.values(), ids=REFUSED)
def test_what_it_refuses(resources: Any, zones: Any, words: str) -> None:
    with pytest.raises(AnsibleFilterError, match=words):
        eks_plan(resources, zones)
