# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects that earlier runs composed, found by the resources that they were composed of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed, ObservedCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, Objects
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import ControlCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import object_path
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.previous_objects import EarlierObjects

TEAM = names.workload_namespace("ml-team")
SERVICES = [f"chat-{number}" for number in range(12)]


def route(service: str) -> dict[str, Any]:
    labels = {
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.NAMESPACE_LABEL: "ml-team",
        names.SERVICE_LABEL: service,
    }
    metadata = {"name": service, "namespace": TEAM, "labels": labels}
    return {"apiVersion": "aigateway.envoyproxy.io/v1beta1", "kind": "AIGatewayRoute", "metadata": metadata}


def files(*services: str) -> dict[str, str]:
    return {object_path("clusters/hub", route(each)): to_yaml(route(each)) for each in services}


def of(service: str) -> Ref:
    return Ref("ModelService", "ml-team", service)


class CountedFiles(dict[str, str]):
    """Texts of files, with how often each was read."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__(texts)
        self.reads: Counter[str] = Counter()

    def __getitem__(self, name: str) -> str:
        self.reads[name] += 1
        return super().__getitem__(name)


class CountedObjects(Objects):
    """Objects of a cluster, with how often all of them were gone through."""

    reads = 0

    def __iter__(self) -> Iterator[Object]:
        self.reads += 1
        return super().__iter__()


def test_files_are_not_read_again_for_each_resource() -> None:
    counted = CountedFiles(files(*SERVICES))
    earlier = EarlierObjects("build", counted)
    for each in SERVICES:
        assert earlier(of(each)) == [("hub", route(each))]
    # Once to see what it is of, and once to parse it: chat-1 is in the text of chat-10 too.
    assert set(counted.reads.values()) == {2}


@pytest.mark.parametrize(
    "written",
    [
        "modelplane.ai/service: {}",
        "modelplane.ai/service: '{}'",
        '"modelplane.ai/service": "{}"',
        "modelplane.ai/service:   {} # by hand",
        "modelplane.ai/service:\n      {}",
        "modelplane.ai/service : {}",
        "? modelplane.ai/service\n    : {}",
        "modelplane.ai/service: !!str {}",
        "modelplane.ai/service: &it {}",
        "modelplane.ai/service: |-\n      {}",
    ],
)
def test_files_that_were_written_by_hand_are_found(written: str) -> None:
    (name, text), *__ = files("chat").items()
    changed = text.replace("modelplane.ai/service: chat", written.format("chat"))
    assert changed != text or written == "modelplane.ai/service: {}"
    earlier = EarlierObjects("build", {name: changed, **files("other")})
    assert earlier(of("chat")) == [("hub", route("chat"))]
    assert earlier(of("other")) == [("hub", route("other"))]
    assert earlier(of("none")) == []


def test_clusters_are_not_gone_through_again_for_each_resource() -> None:
    counted = CountedObjects(map(route, SERVICES))
    cluster = ControlCluster(Observed(clusters={"hub": ObservedCluster(objects=counted)}))
    for each in SERVICES:
        assert cluster.earlier(of(each)) == [("hub", route(each))]
    assert counted.reads == 1
