# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hosts that no endpoint has unless it is allowed, however they are spelt."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint_url import InvalidUrl, parse_url
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import (
    AllowedHosts,
    excluded_networks,
    inner_host,
)

REFUSED = [
    "metadata",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "a.metadata.google.internal",
    "metadata.goog",
    "instance-data.ec2.internal",
    "instance-data.us-west-2.compute.internal",
    "metadata.azure.internal",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.169.253",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fd00:ec2:0:0:0:0:0:254]",
    "[fd00:ec2::23]",
    "[fd20:ce::254]",
    "[fd00:c1::a9fe:a9fe]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::ffff:100.100.100.200]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[::ffff:127.0.0.1]",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "169.254.169.0xfe",
    "0251.0376.0251.0376",
    "169.16689662",
    "127.1",
    "localhost",
    "a.localhost",
    "localhost.localdomain",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.",
    "kubernetes.default.SVC.cluster.local",
    "vllm.models.svc.clusters.example.com",
    "10-1-2-3.models.pod.cluster.local",
    "vllm.models-v2",
    "vllm.kube-system",
    "10.96.0.1",
    "10.100.0.1",
    "172.20.0.1",
    "172.30.0.1",
    "10.43.0.1",
    "34.118.224.1",
    "[::ffff:10.96.0.1]",
]
TAKEN = [
    "api.together.xyz",
    "metadata.example.com",
    "kubernetes.example.com",
    "svc.example.com",
    "localhost.example.com",
    "cluster.local.example.com",
    "mysvc.example.com",
    "llm.internal",
    "llm.xn--p1ai",
    "10.20.0.15",
    "192.168.1.10",
    "100.100.100.201",
    "[fd00:1::1]",
    "[2001:db8::1]",
]


def refused(host: str, *allowed: str) -> bool:
    url = f"http://{host}:8000/latest/meta-data"
    try:
        target = parse_url(url)
    except InvalidUrl:
        return True
    return bool(inner_host(target.host)) and not AllowedHosts.of(allowed).has(target.host)


@pytest.mark.parametrize("host", REFUSED)
def test_the_inside_is_refused(host: str) -> None:
    assert refused(host)


@pytest.mark.parametrize("host", TAKEN)
def test_the_outside_is_taken(host: str) -> None:
    assert not refused(host)


@pytest.mark.parametrize(
    ("host", "entry", "taken"),
    [
        ("vllm.models.svc.cluster.local", "vllm.models.svc.cluster.local", True),
        ("vllm.models.svc.cluster.local", "VLLM.models.svc.cluster.local.", True),
        ("vllm.models.svc.cluster.local", "*.models.svc.cluster.local", True),
        ("vllm.models.svc.cluster.local", "models.svc.cluster.local", False),
        ("vllm.models.svc.cluster.local", "*.svc", False),
        ("evilmodels.svc.cluster.local", "*.models.svc.cluster.local", False),
        ("models.svc.cluster.local", "*.models.svc.cluster.local", False),
        ("10.96.8.1", "10.96.8.0/24", True),
        ("10.96.8.1", "10.96.8.1", True),
        ("10.96.9.1", "10.96.8.0/24", False),
        ("[fd00:ec2::254]", "fd00:ec2::/64", True),
        ("[fd00:ec2::254]", "[fd00:ec2::254]", True),
        ("10.96.0.1", "fd00:ec2::/64", False),
        # Kubernetes takes no such address in an EndpointSlice.
        ("169.254.169.254", "169.254.169.254", False),
    ],
)
def test_what_is_allowed_is_taken(host: str, entry: str, taken: bool) -> None:
    assert refused(host)
    assert refused(host, entry) is not taken


@pytest.mark.parametrize("entry", ["", "*", "*.", "a_b.example", "http://a.example", "10.0.0.0/33", "a.*.example"])
def test_what_is_no_host_is_reported(entry: str) -> None:
    with pytest.raises(ValueError, match="is neither a host"):
        AllowedHosts.of([entry])


@pytest.mark.parametrize("version", [4, 6])
def test_proxies_reach_no_metadata(version: Any) -> None:
    networks = [ip_network(text) for text in excluded_networks(version)]
    known = {4: ["169.254.169.254", "100.100.100.200", "168.63.129.16", "127.0.0.1"], 6: ["fd00:ec2::254", "fe80::1"]}
    for address in known[version]:
        assert any(ip_address(address) in network for network in networks)
    assert not any(ip_address("10.96.0.1") in network for network in networks)
