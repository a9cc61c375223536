# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""URL of an endpoint, parsed into scheme, host and port, as Kubernetes and a gateway need them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from ..names import is_dns_label
from .hosts import embedded

HTTP = "http"
HTTPS = "https"
_DEFAULT_PORTS = {HTTP: 80, HTTPS: 443}
_HOST_LIMIT = 253
# Resolvers read such a name as an IPv4 address (WHATWG URL, "ends in a number").
_HEXADECIMAL = re.compile(r"0x[0-9a-f]*")
_EXAMPLE = "write a URL such as https://api.example.com or http://203.0.113.10:8000"

AddressType = Literal["IPv4", "IPv6", "FQDN"]
"""Types of addresses of an EndpointSlice (Kubernetes API reference, discovery.k8s.io/v1)."""


@dataclass(frozen=True)
class Target:
    """Host and port of an HTTP server, with TLS if `scheme` is https.

    `host` is lower case, without a final dot; an IPv6 address is compressed and has no brackets.
    """

    scheme: str
    host: str
    port: int
    address_type: AddressType

    @property
    def tls(self) -> bool:
        return self.scheme == HTTPS

    @property
    def named(self) -> bool:
        """True when the host is a DNS name, not an address."""
        return self.address_type == "FQDN"

    @property
    def authority(self) -> str:
        """Host header of a request to this URL: without the default port of the scheme (RFC 9110, section 7.2)."""
        host = f"[{self.host}]" if self.address_type == "IPv6" else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class InvalidUrl(ValueError):  # noqa: N818 - the name says what is wrong
    """Reason why requests cannot be sent to a URL. The message never contains a password."""


@lru_cache(maxsize=1 << 14)
def parse_url(url: str) -> Target:
    """Return the target of a URL. Path, query and fragment are ignored. Raises InvalidUrl."""
    # Of signs that can be printed, the space is the only one that is white space.
    if " " in url or not url.isprintable():
        raise InvalidUrl(f"the url has spaces or characters that cannot be printed: {_EXAMPLE}")
    try:
        split_url = urlsplit(url)
    except ValueError:
        raise InvalidUrl(f"the host of the url is not a valid one: {_EXAMPLE}") from None
    if split_url.scheme not in _DEFAULT_PORTS:
        raise InvalidUrl(f"the url begins with neither http:// nor https://: {_EXAMPLE}")
    if "@" in split_url.netloc:
        raise InvalidUrl("the url holds a user name or password: put the key in a Secret and name it in credential")
    if not split_url.hostname:
        raise InvalidUrl(f"the url has no host: {_EXAMPLE}")
    host, address_type = _host(split_url.hostname)
    if "[" in split_url.netloc and address_type != "IPv6":
        raise InvalidUrl(f"the host of the url, {host}, is in brackets but no IPv6 address")
    return Target(split_url.scheme, host, _port(split_url), address_type)


def _port(split_url: SplitResult) -> int:
    try:
        port = split_url.port
    except ValueError:
        port = 0
    if port is None:
        return _DEFAULT_PORTS[split_url.scheme]
    if not port:
        raise InvalidUrl("the port of the url must be a number from 1 to 65535")
    return port


def _host(text: str) -> tuple[str, AddressType]:
    try:
        address = ip_address(text)
    except ValueError:
        return _name(text), "FQDN"
    _check_address(address)
    return str(address), "IPv4" if address.version == 4 else "IPv6"


def _check_address(address: IPv4Address | IPv6Address) -> None:
    """Raise InvalidUrl for an address that Kubernetes rejects in an EndpointSlice (discovery.k8s.io/v1)."""
    if getattr(address, "scope_id", None):
        raise InvalidUrl(f"the host of the url, {address}, has a zone: use an address without one")
    addresses = embedded(address)
    findings = {
        "is a loopback or unspecified address": any(
            candidate.is_loopback or candidate.is_unspecified for candidate in addresses
        ),
        "is valid on one network link only": any(candidate.is_link_local for candidate in addresses),
        "is a multicast address": any(candidate.is_multicast for candidate in addresses),
    }
    for finding, holds in findings.items():
        if holds:
            raise InvalidUrl(f"the host of the url, {address}, {finding}: use an address that the gateway can reach")


def _name(text: str) -> str:
    """Return a DNS name in the format of an EndpointSlice: two labels or more, of letters, digits and "-"."""
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name.isascii():
        raise InvalidUrl(f"the host of the url, {name}, has letters beyond a-z: write it in its xn-- form")
    if len(name) > _HOST_LIMIT or not all(is_dns_label(label) for label in labels):
        raise InvalidUrl(f"the host of the url, {name}, is neither a DNS name nor an IP address")
    if labels[-1].isdigit() or _HEXADECIMAL.fullmatch(labels[-1]):
        raise InvalidUrl(f"the host of the url, {name}, is not a valid IP address")
    if len(labels) == 1:
        raise InvalidUrl(f"the host of the url, {name}, has no domain: write it in full, such as {name}.example.com")
    return name
