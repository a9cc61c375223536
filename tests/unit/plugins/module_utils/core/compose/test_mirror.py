# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror import (
    FLEET_IMAGES,
    MANIFEST,
    ClusterStack,
    Locations,
    charts,
    needs,
    report,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, StackError

GATEWAY: dict[str, Any] = {
    "key": "gateway",
    "wave": 1,
    "chart": "gateway-helm",
    "source": "oci://docker.io/envoyproxy",
    "version": "v1.8.1",
    "namespace": "gateway",
    "images": {"global.imageRegistry": "docker.io"},
}
DRIVER: dict[str, Any] = {
    "key": "driver",
    "wave": 2,
    "needs": "gpu.nvidia.com",
    "chart": "driver",
    "source": "https://charts.example/drivers/",
    "version": "0.4.0",
    "namespace": "driver",
}
OBJECTS = {"key": "quota", "wave": 1, "objects": []}
STACK = [GATEWAY, DRIVER, OBJECTS]
DIGEST = "sha256:" + "0123456789abcdef" * 4
TAG = DIGEST.replace(":", "-")
UNNAMED = {"gateway-helm": {"v1.8.1": ["docker.io/envoyproxy/envoy:v1"]}}


def user(name: str = "east", *, devices_known: bool = True, **choices: Any) -> ClusterStack:
    return ClusterStack(name, STACK, Choices(**choices), devices_known=devices_known)


def needed(found: dict[str, list[str]], places: Locations | None = None, **more: Any) -> dict[str, Any]:
    desired = more.pop("desired", [])
    return needs(desired, found, places or Locations(), **{"unnamed": UNNAMED, "fleet_images": {}, **more})


def image(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["images"] if each["image"] == name)


@pytest.mark.parametrize(
    ("users", "files"),
    [
        pytest.param([], [], id="no user"),
        pytest.param([user()], ["gateway-helm-v1.8.1.tgz"], id="no devices"),
        pytest.param(
            [user(devices_known=False)], ["driver-0.4.0.tgz", "gateway-helm-v1.8.1.tgz"], id="unknown devices"
        ),
        pytest.param([user(states={"gateway": "provided"})], [], id="another owner's"),
        pytest.param(
            [user(), user("west", drivers=["gpu.nvidia.com"], versions={"gateway": "v1.8.2"})],
            ["driver-0.4.0.tgz", "gateway-helm-v1.8.1.tgz", "gateway-helm-v1.8.2.tgz"],
            id="clusters differ",
        ),
    ],
)
def test_which_archives_are_needed(users: list[ClusterStack], files: list[str]) -> None:
    assert [each["file"] for each in charts(users, Locations())] == files


def test_each_way_of_installing_it_is_rendered_once() -> None:
    own = {"gateway": {"replicas": 2}}
    found = charts([user(), user("west"), user("south", values=own), user("north", values=own)], Locations())
    assert [each["values"] for each in found[0]["renders"]] == [{}, {"replicas": 2}]
    assert found[0]["renders"][0]["release"] == "mp-gateway-helm"


def test_mirrors_that_are_set_up_already_are_passed_over() -> None:
    places = {
        "chart_repositories": {"oci://docker.io": "oci://mirror"},
        "image_registries": {"docker.io": "mirror"},
        "image_pull_secrets": ["pull"],
        "charts_dir": "/gone",
        "charts_required": True,
    }
    found = charts([user(**places)], Locations())[0]
    assert (found["ref"], found["archive"]) == ("oci://docker.io/envoyproxy/gateway-helm", "")
    assert found["renders"][0]["values"] == {}


def test_charts_come_from_a_proxy_or_are_there() -> None:
    places = Locations(sources={"https://charts.example": "http://proxy"}, charts_dir="/kept")
    gateway, driver = charts([user(drivers=["gpu.nvidia.com"])], places, ["gateway-helm-1.8.1.tgz"])[::-1]
    assert (driver["ref"], driver["repository"], driver["source"]) == (
        "driver",
        "http://proxy/drivers/",
        DRIVER["source"],
    )
    assert (gateway["archive"], gateway["file"]) == ("/kept/gateway-helm-1.8.1.tgz", "gateway-helm-1.8.1.tgz")


def test_wrong_variables_are_reported_with_the_cluster() -> None:
    with pytest.raises(StackError) as error:
        charts([user(states={"getaway": "managed"}), user("west", versions={"gateway": 1.8})], Locations())
    assert "east: serving_stack_states.getaway is not a component. Did you mean gateway?" in str(error.value)
    assert "west: serving_stack_versions.gateway is 1.8" in str(error.value)


def test_copies_of_charts_are_found_by_the_serving_stack() -> None:
    desired = charts([user(drivers=["gpu.nvidia.com"])], Locations(chart_registry="oci://mirror:5000/charts/"))
    found = needed({}, Locations(chart_registry="oci://mirror:5000/charts/"), desired=desired)
    repositories = found["variables"]["serving_stack_chart_repositories"]
    mirrored = charts([user(drivers=["gpu.nvidia.com"])], Locations(sources=repositories))
    assert {each["chart"]: each["ref"] for each in mirrored} == {
        "gateway-helm": "oci://mirror:5000/charts/docker.io/envoyproxy/gateway-helm",
        "driver": "oci://mirror:5000/charts/charts.example/drivers/driver",
    }
    assert {each["chart"]: f"{each['destination']}/{each['chart']}" for each in desired} == {
        each["chart"]: each["ref"] for each in mirrored
    }


def test_a_folder_is_enough() -> None:
    found = needed(
        {}, Locations(charts_dir="/kept", chart_registry="oci://mirror"), desired=charts([user()], Locations())
    )
    assert found["variables"] == {"serving_stack_charts_dir": "/kept", "serving_stack_charts_required": True}


@pytest.mark.parametrize(
    ("text", "source", "destination", "use"),
    [
        ("quay.io/a/b:1", "proxy/quay/a/b:1", "mirror:5000/x/quay.io/a/b:1", "mirror:5000/x/quay.io/a/b:1"),
        ("b", "docker.io/library/b:latest", "hub/library/b:latest", "hub/library/b:latest"),
        ("r:5000/b:1", "r:5000/b:1", "mirror:5000/x/r-5000/b:1", "mirror:5000/x/r-5000/b:1"),
        # Without a tag a registry may throw it away; programs take a tag or a digest, not both.
        (f"g.io/b@{DIGEST}", f"g.io/b@{DIGEST}", f"mirror:5000/x/g.io/b:{TAG}", f"mirror:5000/x/g.io/b@{DIGEST}"),
        (f"g.io/b:1@{DIGEST}", f"g.io/b@{DIGEST}", "mirror:5000/x/g.io/b:1", f"mirror:5000/x/g.io/b:1@{DIGEST}"),
    ],
)  # fmt: skip
def test_where_images_go(text: str, source: str, destination: str, use: str) -> None:
    places = Locations(
        sources={"quay.io": "proxy/quay"}, image_registry="mirror:5000/x/", image_registries={"docker.io": "hub"}
    )
    found = next(each for each in needed({"other": [text]}, places)["images"] if each["used_by"] == ["other"])
    assert (found["source"], found["destination"], found["use"]) == (source, destination, use)
    assert found["source"].startswith(found["repository"])


def test_images_of_the_collection_are_reported_with_what_to_set() -> None:
    found = needed({}, Locations(image_registry="mirror"), fleet_images={"picker": "quay.io/own/picker:1"})
    assert found["variables"]["fleet_images"]["picker"] == "mirror/quay.io/own/picker:1"
    assert set(found["variables"]["fleet_images"]) == set(FLEET_IMAGES)
    assert found["variables"]["serving_stack_image_registries"]["quay.io"] == "mirror/quay.io"
    assert FLEET_IMAGES["picker"] not in {each["image"] for each in found["images"]}
    assert "fleet_images" not in needed({})["variables"]


def test_what_manifests_have_to_say_is_reported() -> None:
    engines = {f"{MANIFEST}ModelDeployment a/b": ["vllm/vllm-openai:v1"]}
    assert needed(engines, Locations(image_registry="mirror"))["manifests"] == {
        "docker.io/vllm/vllm-openai:v1": "mirror/docker.io/vllm/vllm-openai:v1"
    }
    assert needed(engines)["manifests"] == {}


def test_images_that_no_template_names() -> None:
    known = needed({}, desired=charts([user()], Locations()))
    assert image(known, "docker.io/envoyproxy/envoy:v1")["used_by"] == ["gateway-helm v1.8.1, unnamed"]
    assert known["problems"] == []
    other = needed({}, desired=charts([user(versions={"gateway": "v1.8.2"})], Locations()))
    assert len(other["problems"]) == 1
    assert 'mirror_unnamed_images.gateway-helm under "v1.8.2"' in other["problems"][0]


def test_what_is_no_image_is_reported() -> None:
    assert needed({"mirror_images": ["not an image"]})["problems"] == [
        "mirror_images: not an image is not a valid image reference"
    ]


def test_images_that_no_one_wants() -> None:
    found = needed({"a": ["busybox", "b.io/c:1"]}, exclude=["docker.io/library/busybox:latest"])
    assert {each["image"] for each in found["images"]} >= {"b.io/c:1"}
    assert "busybox" not in str(found)


def test_the_report_has_everything_once() -> None:
    desired = charts([user()], Locations(chart_registry="oci://mirror"))
    found = needed(
        {"b": ["x.io/one:1", "x.io/two:1"], "a": ["x.io/one:1"]}, Locations(image_registry="m"), desired=desired
    )
    lines = report(found)
    assert lines[0] == "1 chart"
    assert "gateway-helm  v1.8.1  oci://docker.io/envoyproxy  oci://mirror/docker.io/envoyproxy" in lines[1]
    assert "  a (and 1 more)" in lines
    for each in found["images"]:
        assert sum(line.strip() == each["image"] for line in lines) == 1
    assert report(needed({}))[0] == "0 charts"
