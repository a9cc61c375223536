# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS: a real API server that is an EKS cluster of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import eks as clouds
from ansible_collections.modelplane.fleet.tests.aws.cluster import EksControlPlane
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.unit.aws.account import cluster, group
from kubernetes import client


@pytest.fixture
def west(aws: AwsDouble, kubernetes_programs: Mapping[str, Path], tmp_path: Path) -> Iterator[EksControlPlane]:
    with EksControlPlane(kubernetes_programs, tmp_path, aws, "west", components=("kwok",)) as started:
        yield started


def as_administrator(server: str, authority: str, token: str, folder: Path) -> client.CoreV1Api:
    configuration = client.Configuration()
    configuration.host = server
    (folder / "ca.pem").write_text(authority)
    configuration.ssl_ca_cert = str(folder / "ca.pem")
    configuration.api_key = {"authorization": f"Bearer {token}"}
    return client.CoreV1Api(client.ApiClient(configuration))


def test_the_creator_gets_in_with_a_token_and_sees_the_nodes(
    aws: AwsDouble, west: EksControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    clouds.forget()
    subnets = cluster(aws)
    server, authority = clouds.describe("west")
    assert (server, authority) == (west.server, west.authority)
    api = as_administrator(server, authority, clouds.minter("west")("").token, tmp_path)
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    scaling = {"minSize": 0, "maxSize": 4, "desiredSize": 2}
    group(aws, "gpu", subnets, scalingConfig=scaling, taints=[taint], labels={"modelplane.ai/pool": "gpu"})
    assert west.join_nodes() == ["gpu-0", "gpu-1"]
    assert west.join_nodes() == []
    nodes = api.list_node(label_selector="modelplane.ai/pool=gpu").items
    assert [node.metadata.name for node in nodes] == ["gpu-0", "gpu-1"]
    assert ("nvidia.com/gpu", "NoSchedule") in [(each.key, each.effect) for each in nodes[0].spec.taints]
    stranger = as_administrator(server, authority, clouds.minter("east")("").token, tmp_path)
    with pytest.raises(client.ApiException) as caught:
        stranger.list_node()
    assert caught.value.status == 401
