# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Definitions and the objects of their kinds, counted on a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.definitions import described
from ansible_collections.modelplane.fleet.plugins.modules import definition_info, object_info
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from kubernetes.client.exceptions import ApiException

GROUP = "counted.example.org"


def definition(kind: str, *, managed_by: str = "", **served: bool) -> dict[str, Any]:
    """Its versions are served or not, the last one is stored."""
    versions = [
        {
            "name": version,
            "served": is_served,
            "storage": version == list(served)[-1],
            "schema": {"openAPIV3Schema": {"type": "object"}},
        }
        for version, is_served in served.items()
    ]
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower(), "listKind": f"{kind}List"}
    labels = {"app.kubernetes.io/managed-by": managed_by} if managed_by else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.{GROUP}", "labels": labels},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": versions},
    }


def test_objects_are_counted_in_a_version_that_is_served(cluster: ControlPlane, client: Client) -> None:
    cluster.apply(
        [
            definition("Used", managed_by="other", v1=True, v2=False),
            definition("Unused", v1=True),
            definition("Hidden", v1=False),
        ]
    )
    cluster.wait_for("the kinds are served", lambda: cluster.objects.knows(f"{GROUP}/v1", "Used"))
    cluster.wait_for("the kinds are served", lambda: cluster.objects.knows(f"{GROUP}/v1", "Unused"))
    for name in ("one", "two"):
        metadata = {"name": name, "namespace": "default"}
        cluster.apply({"apiVersion": f"{GROUP}/v1", "kind": "Used", "metadata": metadata})
    everything = {
        f"useds.{GROUP}": {"group": GROUP, "kind": "Used", "managed_by": "other", "objects": 2},
        f"unuseds.{GROUP}": {"group": GROUP, "kind": "Unused", "managed_by": "", "objects": 0},
        f"hiddens.{GROUP}": {"group": GROUP, "kind": "Hidden", "managed_by": "", "objects": -1},
    }
    assert described(client, [GROUP], []) == everything
    assert described(client, [], [f"useds.{GROUP}"]) == {f"useds.{GROUP}": everything[f"useds.{GROUP}"]}
    assert described(client, [], ["things.counted.example.net"]) == {}

    place = {"clusters": [{"name": "here", "kubeconfig": str(cluster.kubeconfig)}]}
    left = run_module(definition_info, {**place, "groups": [GROUP], "names": [f"unuseds.{GROUP}"]})["clusters"]["here"]
    # What only its name makes ours has no label that says so.
    assert left["unused"] == []
    assert sorted(line.partition(":")[0].partition(".")[0] for line in left["kept"]) == [
        "CustomResourceDefinition hiddens",
        "CustomResourceDefinition useds",
    ]
    unlisted = run_module(definition_info, {**place, "groups": [GROUP]})["clusters"]["here"]
    assert [each["metadata"]["name"] for each in unlisted["unused"]] == [f"unuseds.{GROUP}"]
    kinds = [{"api_version": f"{GROUP}/v1", "kind": kind} for kind in ("Used", "Unused", "Hidden")]
    listed = run_module(object_info, {**place, "kinds": kinds})["clusters"]["here"]
    assert listed["names"] == ["Used default/one", "Used default/two"]
    assert listed["objects"][0] == {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Used",
        "metadata": {"name": "one", "namespace": "default"},
    }
    assert (
        run_module(object_info, {**place, "kinds": [{**kinds[0], "labels": ["a=b"]}]})["clusters"]["here"]["names"]
        == []
    )


def test_a_gateway_stays_on_its_cluster(cluster: ControlPlane) -> None:
    cluster.apply(crd(KINDS["InferenceGateway"]))
    cluster.wait_for("gateways are served", lambda: cluster.objects.knows("modelplane.ai/v1alpha1", "InferenceGateway"))
    gateway = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceGateway",
        "metadata": {"name": "edge"},
        "spec": {"clusterName": "west"},
    }
    cluster.apply(gateway)
    with pytest.raises(ApiException, match="clusterName cannot change: add a gateway for the other cluster"):
        cluster.apply({**gateway, "spec": {"clusterName": "east"}})
    cluster.apply({**gateway, "spec": {"mode": "Model", "clusterName": "west"}})
    cluster.objects.delete("modelplane.ai/v1alpha1", "InferenceGateway", "edge")
