# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what the resources of a fleet expect to find on clusters."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import ExpectedCluster, expected
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen

KEYED = seen.endpoint("https://api.example.com/v1", credential={"apiKey": {"secretRef": {"name": "key"}}})


def test_clusters_classes_secrets_and_gateway() -> None:
    found = expected([seen.EKS, seen.CLASS, seen.CACHE, KEYED, seen.GATEWAY])
    east = found.cluster("east")
    assert (east.provisioned, east.device_classes, east.drivers) == (True, ["gpu.nvidia.com"], ["gpu.nvidia.com"])
    assert [(promise.pool, promise.class_name) for promise in east.promises] == [("gpu-l4", "l4")]
    assert found.secrets == {
        ("ml-team", "hf-token"): frozenset({"HF_TOKEN"}),
        ("ml-team", "key"): frozenset({"apiKey"}),
    }
    assert found.gateway == api.parse(seen.GATEWAY)


def test_a_cluster_of_the_users_own_is_not_made() -> None:
    assert not expected([seen.EXISTING, seen.CLASS]).cluster("east").provisioned


def test_nothing_is_promised_without_the_class() -> None:
    assert expected([seen.EXISTING]).cluster("east") == ExpectedCluster("east")
    assert expected([]).cluster("west") == ExpectedCluster("west")


def test_keys_of_one_secret_are_put_together() -> None:
    reference = {"name": "hf-token", "key": "apiKey"}
    other = seen.endpoint(credential={"apiKey": {"secretRef": reference}})
    assert expected([seen.endpoint()]).secrets == {}
    assert expected([seen.CACHE, other]).secrets == {("ml-team", "hf-token"): frozenset({"HF_TOKEN", "apiKey"})}


def test_gateways_in_mode_model_are_expected_on_their_clusters_and_reach_the_others() -> None:
    def gateway(name: str, cluster: str, **spec: object) -> dict[str, object]:
        kind = {"apiVersion": seen.GATEWAY["apiVersion"], "kind": "InferenceGateway"}
        return {**kind, "metadata": {"name": name}, "spec": {"clusterName": cluster, **spec}}

    selector = {"matchLabels": {"b": "2", "a": "1"}}
    auth = {"method": "APIKey", "apiKey": {"secretSelector": selector}}
    far = {**seen.EXISTING, "metadata": {"name": "far"}}
    found = expected([seen.EXISTING, far, seen.GATEWAY, gateway("eu", "east", auth=auth), gateway("us", "nowhere")])
    assert [
        (each.has_cluster_gateway, each.hosts_gateway) for each in map(found.cluster, ("east", "far", "other"))
    ] == [
        (True, True),
        (True, False),
        (False, False),
    ]
    assert found.gateway == api.parse(seen.GATEWAY)
    assert found.caller_keys == ({"a": "1", "b": "2"},)
    nowhere = expected([seen.EXISTING, gateway("us", "nowhere")]).cluster("east")
    assert (nowhere.has_cluster_gateway, nowhere.hosts_gateway) == (False, False)


@pytest.mark.parametrize("spec", [None, [], {"huggingFace": None}, {"huggingFace": {"authSecret": "x"}}])
def test_broken_resources_expect_nothing(spec: object) -> None:
    assert expected([{**seen.CACHE, "spec": spec}, {**seen.EKS, "spec": spec}]).secrets == {}
