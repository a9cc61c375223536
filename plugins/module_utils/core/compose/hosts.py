# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Internal hosts that endpoints outside the fleet may use only if the operator of the fleet allows them.

The control cluster sends the requests for an endpoint, and the author of the endpoint chooses their path. An endpoint
at the metadata service of a cloud would disclose the credentials of a node, and one in the cluster would bypass its
NetworkPolicies.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, collapse_addresses, ip_address, ip_network
from typing import Any

from ..cloud.registry import CLOUDS
from ..names import is_dns_label
from .top_level_domains import TOP_LEVEL_DOMAINS

Address = IPv4Address | IPv6Address  # pylint: disable=unsupported-binary-operation
Network = IPv4Network | IPv6Network  # pylint: disable=unsupported-binary-operation

_METADATA = "is the metadata service of a cloud"
_CLUSTER = "is a name of the cluster itself"
_PRIVATE = "has no top-level domain of the public DNS: it resolves in a cluster or a private network only"
_EMBEDDING = "is of a DNS service that resolves a name to the address in it"
_SERVICES = "is in a default range of Services of a cluster"
_MACHINE = "is a loopback address or name"
_LINK = "is valid on one network link only"
_RESERVED = "is in a range that is reserved for protocols and tests (IANA special-purpose registries)"

_SUFFIXES = {
    _METADATA: "metadata.azure.internal metadata.tencentyun.com metadata.platformequinix.com metadata.packet.net "
    f"metadata.exoscale.com {' '.join(host for cloud in CLOUDS for host in cloud.platform.metadata_hosts)}",
    _CLUSTER: "cluster.local svc pod default",
    _MACHINE: "localhost localdomain",
    # Below a public top-level domain, but in the private network (RFC 8375, RFC 9462, RFC 9665, RFC 7050).
    _PRIVATE: "home.arpa resolver.arpa service.arpa ipv4only.arpa",
    _EMBEDDING: "nip.io sslip.io xip.io traefik.me backname.io ip6.name ipq.co 1u.ms rbndr.us local-ip.co local-ip.sh "
    "plex.direct localhost.direct lvh.me localtest.me vcap.me fuf.me lacolhost.com localho.st 127-0-0-1.org.uk",
}
"""Names that are internal with all names below them, by reason."""
_NO_HOSTS = ("example", "invalid", "test")
"""Top-level domains that are reserved for documentation and tests (RFC 6761)."""
_NETWORKS = {
    _MACHINE: "127.0.0.0/8 0.0.0.0/32 ::1/128",
    _LINK: "169.254.0.0/16 fe80::/10",
    # Alibaba Cloud, Azure (WireServer), Oracle Cloud (both generations), Scaleway, Akamai.
    _METADATA: "100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 fd00:c1::a9fe:a9fe/128 fd00:42::42/128 "
    f"fd00:a9fe:a9fe::1/128 {' '.join(network for cloud in CLOUDS for network in cloud.platform.metadata_networks)}",
    # Defaults of kubeadm, OpenShift, k3s (RKE2) and clouds. Other ranges might be networks of machines.
    _SERVICES: "10.96.0.0/12 172.30.0.0/16 10.43.0.0/16 "
    f"{' '.join(network for cloud in CLOUDS for network in cloud.platform.services)}",
    # IANA IPv4 Special-Purpose Address Registry: all that is not globally reachable, except private use, shared
    # address space and documentation. The anycast addresses in 192.0.0.0/24 are of protocols, too. IANA IPv6
    # Special-Purpose Address Registry, and ranges without unicast addresses: IPv4-compatible, IPv4-translated, NAT64 of
    # one network, discard-only, IETF protocols with Teredo, 6to4, SRv6 segments, site-local and multicast.
    _RESERVED: "0.0.0.0/8 192.0.0.0/24 192.88.99.0/24 198.18.0.0/15 224.0.0.0/4 240.0.0.0/4 ::/96 ::ffff:0:0:0/96 "
    "64:ff9b:1::/48 100::/63 2001::/23 2002::/16 5f00::/16 fec0::/10 ff00::/8",
}
"""Internal networks by reason. The first reason counts."""
_UNICAST = tuple(ip_network(text) for text in ("2000::/3", "fc00::/7", "64:ff9b::/96", "::ffff:0:0/96"))
"""IPv6 ranges for host addresses. All other ranges are reserved (IANA IPv6 Address Space)."""
_NAT64 = int(IPv6Address("64:ff9b::"))
_ISATAP = (0x00005EFE, 0x02005EFE)
"""First half of an interface identifier with an IPv4 address as its second half (RFC 5214)."""
_IPV4_IN_NAME = re.compile(r"(?<![0-9])(?=([0-9]{1,3}(?:[.-][0-9]{1,3}){3})(?![0-9]))")


def outside_peers(allowed: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the peers of a NetworkPolicy for all external addresses and the CIDRs in these entries of
    `fleet_endpoint_hosts`.

    Raises ValueError as `AllowedHosts.of`.
    """
    return [
        *(
            {"ipBlock": {"cidr": cidr, "except": excluded_networks(version)}}
            for cidr, version in (("0.0.0.0/0", 4), ("::/0", 6))
        ),
        *({"ipBlock": {"cidr": str(network)}} for network in AllowedHosts.of(allowed).networks),
    ]


def excluded_networks(version: int) -> list[str]:
    """Return the denied address ranges of proxies (4: IPv4, 6: IPv6).

    Service ranges are not included: NetworkPolicies apply to the addresses of the pods behind a Service, and nodes in
    another cluster might have such addresses. The IPv6 ranges include the IPv4 ranges behind NAT64.
    """
    ipv4: list[IPv4Network] = []
    ipv6: list[IPv6Network] = []
    for network, reason in _networks():
        if reason == _SERVICES:
            continue
        if isinstance(network, IPv4Network):
            ipv4.append(network)
            ipv6.append(IPv6Network((_NAT64 + int(network.network_address), 96 + network.prefixlen)))
        else:
            ipv6.append(network)
    return [str(network) for network in (collapse_addresses(ipv4) if version == 4 else collapse_addresses(ipv6))]


def inner_host(host: str) -> str:
    """Return the reason why a host (a name in lower case, or an address) is internal; "" for an external host."""
    try:
        address = ip_address(host)
    except ValueError:
        return _inner_name(host)
    return next(filter(None, map(_inner_address, embedded(address))), "")


def _inner_address(address: Address) -> str:
    reason = next((reason for network, reason in _networks() if _holds(network, address)), "")
    is_host = address.version == 4 or any(_holds(network, address) for network in _UNICAST)
    return reason if reason or is_host else _RESERVED


def embedded(address: Address) -> list[Address]:
    """Return the address and the IPv4 addresses embedded in it: mapped, compatible, translated, 6to4, Teredo, ISATAP
    and NAT64."""
    if isinstance(address, IPv4Address):
        return [address]
    number = int(address)
    candidates = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if (
        (number >> 32 == 0 and number > 1)
        or any(address in IPv6Network(text) for text in ("64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96"))
        or number >> 32 & 0xFFFFFFFF in _ISATAP
    ):
        candidates.append(IPv4Address(number & 0xFFFFFFFF))
    return [address, *filter(None, candidates)]


def _inner_name(name: str) -> str:
    labels = name.split(".")
    for reason, suffixes in _SUFFIXES.items():
        if f".{name}".endswith(tuple(f".{suffix}" for suffix in suffixes.split())):
            return reason
    top_level = labels[-1]
    if not (top_level in TOP_LEVEL_DOMAINS or top_level in _NO_HOSTS or top_level.startswith("xn--")):
        # A Service and its namespace, for example.
        return _PRIVATE
    addresses = _addresses_in(name)
    if "svc" in labels[1:] or ("pod" in labels[1:] and addresses):
        # Of a cluster with a custom domain.
        return _CLUSTER
    if labels[0] == "instance-data":
        return _METADATA
    is_inner = any(_inner_address(address) in (_MACHINE, _LINK, _METADATA) for address in addresses)
    return "contains an internal address, and might resolve to it" if is_inner else ""


def _addresses_in(name: str) -> list[IPv4Address]:
    """Return the IPv4 addresses in a name, with dots or dashes: names of wildcard DNS and of pods contain them."""
    addresses = ([int(number) for number in re.split("[.-]", match[1])] for match in _IPV4_IN_NAME.finditer(name))
    return [IPv4Address(bytes(numbers)) for numbers in addresses if max(numbers) < 256]


@functools.cache
def _networks() -> tuple[tuple[Network, str], ...]:
    return tuple((ip_network(text), reason) for reason, networks in _NETWORKS.items() for text in networks.split())


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
