# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Internal hosts that endpoints outside the fleet may use only if the operator of the fleet allows them.

Requests for an endpoint come from the control cluster, and the author of the endpoint chooses their path. An endpoint
at the metadata service of a cloud would disclose the credentials of a node, and one in the cluster would bypass its
NetworkPolicies.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import CLOUDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import is_dns_label

Address = IPv4Address | IPv6Address  # pylint: disable=unsupported-binary-operation
Network = IPv4Network | IPv6Network  # pylint: disable=unsupported-binary-operation

_METADATA = "is the metadata service of a cloud"
_CLUSTER = "is a name of the cluster itself"
_SERVICES = "is in a default range of Services of a cluster"
_MACHINE = "is a loopback address or name"
_LINK = "is valid on one network link only"

_METADATA_HOSTS = tuple(host for cloud in CLOUDS for host in cloud.platform.metadata_hosts)
_NAMES = {
    **dict.fromkeys(_METADATA_HOSTS, _METADATA),
    "metadata.azure.internal": _METADATA,
    "metadata.tencentyun.com": _METADATA,
    "cluster.local": _CLUSTER,
}
_SUFFIXES = {
    **dict.fromkeys(_METADATA_HOSTS, _METADATA),
    "cluster.local": _CLUSTER,
    "svc": _CLUSTER,
    "localhost": _MACHINE,
    "localdomain": _MACHINE,
}
_NETWORKS: dict[str, str] = {
    "127.0.0.0/8": _MACHINE,
    "169.254.0.0/16": _LINK,
    "::1/128": _MACHINE,
    "fe80::/10": _LINK,
    **{network: _METADATA for cloud in CLOUDS for network in cloud.platform.metadata_networks},
    **{network: _SERVICES for cloud in CLOUDS for network in cloud.platform.services},
    "100.100.100.200/32": _METADATA,  # Alibaba Cloud
    "168.63.129.16/32": _METADATA,  # Azure, WireServer
    "192.0.0.192/32": _METADATA,  # Oracle Cloud, first generation
    "10.96.0.0/12": _SERVICES,  # kubeadm
    "172.30.0.0/16": _SERVICES,  # OpenShift
    "10.43.0.0/16": _SERVICES,  # k3s, RKE2
    "fd00:c1::a9fe:a9fe/128": _METADATA,  # Oracle Cloud
}
"""Internal networks, with the reasons. Ranges of Services are defaults of distributions; others cannot be distinguished
from networks of machines."""


def excluded_networks(version: int) -> list[str]:
    """Return the address ranges (4: IPv4, 6: IPv6) to which egress proxies do not connect.

    Ranges of Services are not included: network policies apply to the addresses of the pods behind them, and in another
    cluster machines may have such addresses.
    """
    return [text for text, reason in _NETWORKS.items() if reason != _SERVICES and ip_network(text).version == version]


def inner_host(host: str) -> str:
    """Return the reason why a host (a name in lower case, or an address) is internal; "" for an external host."""
    try:
        address = ip_address(host)
    except ValueError:
        return _inner_name(host)
    return next((reason for each in embedded(address) for network, reason in _networks() if _holds(network, each)), "")


def embedded(address: Address) -> list[Address]:
    """Return the address and the IPv4 addresses embedded in it: mapped, compatible, 6to4 and NAT64."""
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
    for suffix, reason in _SUFFIXES.items():
        if name.endswith(f".{suffix}"):
            return reason
    if "svc" in labels[1:]:
        # A Service of a cluster with a custom domain.
        return _CLUSTER
    last = labels[-1]
    if len(labels) == 2 and (last == "default" or not (last.isalpha() or last.startswith("xn--"))):
        # A Service and its namespace: no top-level domain has such a name (RFC 3696, section 2).
        return _CLUSTER
    return _METADATA if labels[0] == "instance-data" else ""


@functools.cache
def _networks() -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(text), reason) for text, reason in _NETWORKS.items())


def _holds(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network


@dataclass(frozen=True)
class AllowedHosts:
    """Internal hosts that endpoints may use: names, suffixes (`.example.com`) and address ranges."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> AllowedHosts:
        """Parse hosts, `*.suffix` and CIDRs. Raises ValueError with the invalid entry."""
        names, suffixes, networks = set(), [], []
        for entry in entries:
            text = str(entry).strip().lower().removesuffix(".")
            network = _network(text)
            if network is not None:
                networks.append(network)
            elif not all(is_dns_label(label) for label in text.removeprefix("*.").split(".")):
                raise ValueError(
                    f"{entry!r} is neither a host (a.example), nor '*.' and a suffix (*.a.example), nor a CIDR"
                )
            elif text.startswith("*."):
                suffixes.append(text[1:])
            else:
                names.add(text)
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def has(self, host: str) -> bool:
        """Return True for a host (a name in lower case, or an address) that an entry matches."""
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
