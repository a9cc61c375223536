# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filters of the playbook mirror as functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter.images_in import images_in
from ansible_collections.modelplane.fleet.plugins.filter.mirror_charts import mirror_charts
from ansible_collections.modelplane.fleet.plugins.filter.mirror_needs import mirror_needs

LWS = {
    "key": "lws",
    "wave": 1,
    "chart": "lws",
    "source": "oci://registry.k8s.io/lws/charts",
    "version": "v0.8.0",
    "namespace": "lws-system",
}
DRIVER = {**LWS, "key": "driver", "chart": "driver", "needs": "gpu.nvidia.com"}
EAST = {"drivers": ["gpu.nvidia.com"], "stack": {}}


class Untouchable(Mapping[str, Any]):
    """A component whose objects need files of its role."""

    def __init__(self, **values: Any) -> None:
        self.values_of = {**values, "objects": None}

    def __getitem__(self, key: str) -> Any:
        if key == "objects":
            raise AssertionError("objects were read")
        return self.values_of[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_of)

    def __len__(self) -> int:
        return len(self.values_of)


def files(hosts: dict[str, dict[str, Any]], *, clusters: Any = None, components: Any = (LWS, DRIVER)) -> list[str]:
    return [each["file"] for each in mirror_charts(hosts, list(hosts), components, clusters)]


def test_problems_of_versions() -> None:
    old = {"a": {"serving_stack_versions": {"lws": "0.8"}}}
    [problem] = mirror_charts(old, ["a"], [LWS], only_problems=True)
    assert problem.startswith("a: lws: version '0.8' ")
    assert mirror_charts({"a": {}}, ["a"], [LWS], only_problems=True) == []


@pytest.mark.parametrize(
    ("hosts", "clusters", "desired"),
    [
        pytest.param({"a": {}}, {}, ["driver-v0.8.0.tgz", "lws-v0.8.0.tgz"], id="unknown hardware"),
        pytest.param({"a": {}}, {"a": {**EAST, "drivers": []}}, ["lws-v0.8.0.tgz"], id="known hardware"),
        pytest.param(
            {"a": {"fleet_cluster": "b"}}, {"b": {**EAST, "drivers": []}}, ["lws-v0.8.0.tgz"], id="other name"
        ),
        pytest.param({"a": {"serving_stack_drivers": []}}, {"a": EAST}, ["lws-v0.8.0.tgz"], id="said otherwise"),
        pytest.param({"a": {"serving_stack_components": [LWS]}}, {}, ["lws-v0.8.0.tgz"], id="own components"),
        pytest.param(
            {"a": {"serving_stack_versions": {"lws": "v1.0.0"}}, "b": {}},
            {"a": {**EAST, "drivers": []}, "b": {**EAST, "drivers": []}},
            ["lws-v0.8.0.tgz", "lws-v1.0.0.tgz"],
            id="hosts differ",
        ),
    ],
)
def test_what_hosts_need(hosts: dict[str, dict[str, Any]], clusters: Any, desired: list[str]) -> None:
    assert files(hosts, clusters=clusters) == desired


def test_objects_of_components_are_not_read() -> None:
    assert files({"a": {}}, components=[Untouchable(**LWS)]) == ["lws-v0.8.0.tgz"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mirror_charts([], ["a"], [LWS]), "must be hostvars"),
        (lambda: mirror_charts({"a": {}}, "a", [LWS]), "hosts a list"),
        (lambda: mirror_charts({"a": {}}, ["b"], [LWS]), "there is no host b"),
        (lambda: mirror_charts({"a": {}}, ["a"], [LWS], places={"folder": "x"}), "folder"),
        (lambda: mirror_charts({"a": {"serving_stack_states": {"lsw": "x"}}}, ["a"], [LWS]), "Did you mean lws?"),
        (lambda: mirror_charts({"a": {"serving_stack_states": ["lws"]}}, ["a"], [LWS]), "must be a mapping"),
        (lambda: mirror_needs({}, {}), "must be a list of charts"),
        (lambda: mirror_needs([], []), "must be a list of charts"),
        (lambda: mirror_needs([], {}, {"registry": "x"}), "registry"),
    ],
)
def test_what_is_of_no_use_is_reported(call: Any, message: str) -> None:
    with pytest.raises(AnsibleFilterError) as error:
        call()
    assert message in str(error.value)


def test_the_list_is_data() -> None:
    found = mirror_needs(mirror_charts({"a": {}}, ["a"], [LWS]), {"lws v0.8.0": ["registry.k8s.io/lws/lws:v0.8.0"]})
    assert json.loads(json.dumps(found)) == found
    assert "1 chart" in found["report"][0]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("kind: Pod\nspec: {containers: [{image: nginx}]}", ["docker.io/library/nginx:latest"]),
        ([{"image": "b.io/b:1"}, {"image": "a.io/a:1"}], ["a.io/a:1", "b.io/b:1"]),
        ("", []),
    ],
)
def test_images_of_text_and_of_objects(value: Any, found: list[str]) -> None:
    assert images_in(value) == found
