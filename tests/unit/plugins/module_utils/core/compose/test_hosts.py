# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hosts that no endpoint has unless it is allowed, however they are spelt."""

from __future__ import annotations

import ipaddress
from importlib.resources import files
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint_url import InvalidUrl, parse_url
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import (
    AllowedHosts,
    excluded_networks,
    inner_host,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.top_level_domains import TOP_LEVEL_DOMAINS

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
    # Special-purpose addresses (IANA registries).
    "0.1.2.3",
    "192.0.0.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.254",
    "240.0.0.1",
    "255.255.255.255",
    "[64:ff9b:1::808:808]",
    "[64:ff9b:1:fffe::1]",
    "[64:ff9b::c000:1]",
    "[2001::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[2001:2::1]",
    "[2001:10::1]",
    "[2001:1::1]",
    "[2002:808:808::1]",
    "[fec0::1]",
    "[feff::1]",
    "[100::1]",
    "[100:0:0:1::1]",
    "[5f00::1]",
    "[4000::1]",
    "[200::1]",
    "[::ffff:0:169.254.169.254]",
    "[::ffff:0:8.8.8.8]",
    "[::8.8.8.8]",
    "[2001:db8::5efe:169.254.169.254]",
    "[fd00:1::200:5efe:127.0.0.1]",
    "[64:ff9b:1::169.254.169.254]",
    "[fd00:42::42]",
    # Names that resolve in a cluster or a private network only.
    "vault.vault",
    "vllm.models",
    "vllm-0.vllm.models",
    "10-0-0-1.default.pod",
    "10-0-0-1.models.pod.clusters.example.com",
    "host.docker.internal",
    "gateway.docker.internal",
    "host.minikube.internal",
    "host.containers.internal",
    "ip-10-0-0-1.ec2.internal",
    "vllm.us-west-2.compute.internal",
    "vm.c.project.internal",
    "llm.internal",
    "printer.local",
    "vllm.lab.lan",
    "vault.corp",
    "router.home.arpa",
    # Names with addresses in them.
    "169.254.169.254.nip.io",
    "a.169-254-169-254.nip.io",
    "a9fea9fe.nip.io",
    "8.8.8.8.nip.io",
    "127-0-0-1.sslip.io",
    "--1.sslip.io",
    "169.254.169.254.xip.io",
    "7f000001.a9fea9fe.rbndr.us",
    "app.localtest.me",
    "app.lvh.me",
    "169-254-169-254.example.com",
    "1-169-254-169-254.example.com",
    "a-127-0-0-1.example.com",
    "127.0.0.1.example.com",
    "0.0.0.0.example.com",
    "100-100-100-200.example.com",
    "metadata.platformequinix.com",
    # Spellings of addresses that resolvers know.
    "0x7f.1",
    "0177.0.0.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "127.0.0.1.",
    "１２７.0.0.1",
    "%31%32%37.0.0.1",
]
TAKEN = [
    "api.together.xyz",
    "metadata.example.com",
    "kubernetes.example.com",
    "svc.example.com",
    "localhost.example.com",
    "cluster.local.example.com",
    "mysvc.example.com",
    "llm.xn--p1ai",
    "llm.test",
    "svc.dev",
    "api.pod.example.com",
    "ec2-54-1-2-3.compute-1.amazonaws.com",
    "vllm-10-0-0-5.example.com",
    "v1-2-3-4.example.com",
    "1.27.0.0.1.example.com",
    "999-254-169-254.example.com",
    "8.8.8.8",
    "100.64.0.10",
    "172.16.0.1",
    "203.0.113.10",
    "192.0.1.1",
    "[2606:4700::1111]",
    "[2001:200::1]",
    "[64:ff9b::808:808]",
    "[::ffff:8.8.8.8]",
    "[fd12:3456::5efe:8.8.8.8]",
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
        ("198.18.0.1", "198.18.0.0/15", True),
        ("[64:ff9b:1::808:808]", "64:ff9b:1::/48", True),
        ("vllm.lab.lan", "*.lab.lan", True),
        ("10.1.2.3.nip.io", "*.nip.io", True),
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
    known = {
        4: [
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "127.0.0.1",
            "0.0.0.0",
            "198.18.0.1",
            "255.255.255.255",
        ],
        6: [
            "fd00:ec2::254",
            "fe80::1",
            "64:ff9b::a9fe:a9fe",
            "2001::1",
            "64:ff9b:1::1",
            "fec0::1",
            "::ffff:0:a9fe:a9fe",
        ],
    }
    for address in known[version]:
        assert any(ip_address(address) in network for network in networks)
    reached = ["10.96.0.1", "100.64.0.1", "8.8.8.8", "fd00:1::1", "2606:4700::1111", "64:ff9b::808:808"]
    assert not any(ip_address(each) in network for each in reached for network in networks)


PRIVATE_USE = [
    # Hosts of the networks that the operator has, and documentation, which leads nowhere.
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
]


@pytest.mark.parametrize("name", ["_IPv4Constants", "_IPv6Constants"])
def test_the_networks_are_those_of_the_registries_as_python_has_them(name: str) -> None:
    networks = getattr(ipaddress, name)._private_networks
    assert len(networks) > 9
    meant = [ip_network(text) for text in PRIVATE_USE]
    for network in networks:
        # The host of an IPv4-mapped address is the IPv4 one.
        if network in meant or network == ip_network("::ffff:0:0/96"):
            continue
        for address in (network[0], network[-1]):
            assert refused(f"[{address}]" if network.version == 6 else str(address)), network


def test_top_level_domains_are_those_of_the_root_zone() -> None:
    text = files("hypothesis.vendor").joinpath("tlds-alpha-by-domain.txt").read_text("ascii").lower()
    delegated = {line for line in text.splitlines() if line and not line.startswith(("#", "xn--"))}
    assert delegated == TOP_LEVEL_DOMAINS
