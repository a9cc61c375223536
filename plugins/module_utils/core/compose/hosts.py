# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hosts that endpoints outside of the fleet have only where whoever runs the fleet allows it.

Requests for an endpoint come from the control cluster, and its author chooses their path. So an endpoint at the
metadata service of a cloud would hand out the credentials of a node, and one in the cluster would pass its
NetworkPolicies.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import is_dns_label

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_METADATA = "is the metadata service of a cloud"
_CLUSTER = "is a name of the cluster itself"
_SERVICES = "is in a range that clusters take for their own Services"
_MACHINE = "means the machine itself"
_LINK = "is good on one network link only"

_NAMES = {
    "metadata.google.internal": _METADATA,
    "metadata.goog": _METADATA,
    "metadata.azure.internal": _METADATA,
    "metadata.tencentyun.com": _METADATA,
    "cluster.local": _CLUSTER,
}
_SUFFIXES = {
    "metadata.google.internal": _METADATA,
    "cluster.local": _CLUSTER,
    "svc": _CLUSTER,
    "localhost": _MACHINE,
    "localdomain": _MACHINE,
}
_NETWORKS: dict[str, str] = {
    "127.0.0.0/8": _MACHINE,
    "169.254.0.0/16": _LINK,
    "100.100.100.200/32": _METADATA,  # Alibaba Cloud
    "168.63.129.16/32": _METADATA,  # Azure, WireServer
    "192.0.0.192/32": _METADATA,  # Oracle Cloud, first generation
    "10.96.0.0/12": _SERVICES,  # kubeadm, EKS
    "172.20.0.0/16": _SERVICES,  # EKS in a VPC of 10.0.0.0/8
    "34.118.224.0/20": _SERVICES,  # GKE
    "172.30.0.0/16": _SERVICES,  # OpenShift
    "10.43.0.0/16": _SERVICES,  # k3s, RKE2
    "::1/128": _MACHINE,
    "fe80::/10": _LINK,
    "fd00:ec2::/32": _METADATA,  # AWS: metadata, DNS, time
    "fd20:ce::254/128": _METADATA,  # Google Cloud
    "fd00:c1::a9fe:a9fe/128": _METADATA,  # Oracle Cloud
}
"""What is told to be a range of Services is the default of a distribution. Other ranges cannot be told from those of
machines."""


def excluded_networks(version: int) -> list[str]:
    """The ranges of addresses (4: IPv4, 6: IPv6) to which no egress proxy connects.

    Ranges of Services are not among them: network policies are about the addresses of pods behind them, and in another
    cluster machines may have such addresses.
    """
    return [text for text, said in _NETWORKS.items() if said != _SERVICES and ip_network(text).version == version]


def inner_host(host: str) -> str:
    """How the host (a name in lower case, or an address) belongs to a cloud's or the cluster's inside; else empty."""
    try:
        address = ip_address(host)
    except ValueError:
        return _inner_name(host)
    return next((said for each in embedded(address) for network, said in _networks() if _holds(network, each)), "")


def embedded(address: Address) -> list[Address]:
    """The address, and the IPv4 addresses that it stands for: mapped, compatible, of 6to4 and of NAT64."""
    if isinstance(address, IPv4Address):
        return [address]
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    inside = [address.ipv4_mapped, address.sixtofour]
    if address in IPv6Network("64:ff9b::/96") or (int(address) >> 32 == 0 and int(address) > 1):
        inside.append(last)
    return [address, *(each for each in inside if each is not None)]


def _inner_name(name: str) -> str:
    labels = name.split(".")
    if name in _NAMES:
        return _NAMES[name]
    for suffix, said in _SUFFIXES.items():
        if name.endswith(f".{suffix}"):
            return said
    if "svc" in labels[1:]:
        # Of a cluster with a domain of its own.
        return _CLUSTER
    last = labels[-1]
    if len(labels) == 2 and (last == "default" or not (last.isalpha() or last.startswith("xn--"))):
        # A Service and its namespace: no top-level domain has a name like that (RFC 3696, section 2).
        return _CLUSTER
    return _METADATA if labels[0] == "instance-data" else ""


@functools.cache
def _networks() -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(text), said) for text, said in _NETWORKS.items())


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network


@dataclass(frozen=True)
class AllowedHosts:
    """Hosts that endpoints may have although they belong to the inside: names, suffixes (`.example.com`) and ranges."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> AllowedHosts:
        """Read hosts, `*.suffix` and CIDRs; raises ValueError, which says what is wrong with which entry."""
        names, suffixes, networks = set(), [], []
        for entry in entries:
            text = str(entry).strip().lower().removesuffix(".")
            network = _network(text)
            if network is not None:
                networks.append(network)
            elif not all(is_dns_label(label) for label in text.removeprefix("*.").split(".")):
                raise ValueError(
                    f"{entry!r} is none of a host (a.example), '*.' and a suffix (*.a.example), and a CIDR"
                )
            elif text.startswith("*."):
                suffixes.append(text[1:])
            else:
                names.add(text)
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def has(self, host: str) -> bool:
        """Return True for a host (a name in lower case, or an address) that an entry names."""
        try:
            address = ip_address(host)
        except ValueError:
            return host in self.names or host.endswith(self.suffixes)
        return any(_holds(network, address) for network in self.networks)


def _network(text: str) -> Network | None:
    try:
        return ip_network(text.removeprefix("[").removesuffix("]"), strict=False)
    except ValueError:
        return None
