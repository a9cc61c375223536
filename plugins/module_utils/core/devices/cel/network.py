# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubernetes' libraries for addresses, networks and URLs (`net.IP`, `net.CIDR`, `kubernetes.URL`)."""

from __future__ import annotations

import ipaddress
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .values import CelError, CelMap, Opaque

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address  # pylint: disable=unsupported-binary-operation


@dataclass(frozen=True)
class Address:
    """IP address. Kubernetes accepts no zones and no IPv4 addresses in IPv6 notation."""

    ip: _Address

    @property
    def width(self) -> int:
        return 32 if self.ip.version == 4 else 128

    def cost_size(self) -> int:
        return (self.width + 7) // 8

    def __str__(self) -> str:
        return str(self.ip)


@dataclass(frozen=True)
class Network:
    """Network address and the length of its prefix. Bits after the prefix can be set."""

    address: Address
    prefix: int

    def cost_size(self) -> int:
        return (self.prefix + 7) // 8

    @property
    def masked(self) -> Network:
        shift = self.address.width - self.prefix
        kind = type(self.address.ip)
        return Network(Address(kind(int(self.address.ip) >> shift << shift)), self.prefix)

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix}"


def _parse_address(text: str) -> Address:
    if "%" in text:
        raise ValueError(f"IP address {text!r} with zone value is not allowed")
    address = Address(ipaddress.ip_address(text))
    if isinstance(address.ip, ipaddress.IPv6Address) and address.ip.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {text!r} is not allowed")
    return address


def _parse_network(text: str) -> Network:
    address_text, slash, prefix = text.rpartition("/")
    address = _parse_address(address_text)
    plain = prefix.isascii() and prefix.isdigit() and (prefix == "0" or prefix[0] != "0") and len(prefix) <= 3
    if not slash or not plain or int(prefix) > address.width:
        raise ValueError(f"{text!r} is no network: write one such as 10.0.0.0/8")
    return Network(address, int(prefix))


def _reader(kind: str, parse: Callable[[str], Any]) -> Callable[[str], Opaque]:
    def read(text: str) -> Opaque:
        try:
            return Opaque(kind, parse(text))
        except ValueError as error:
            raise CelError(str(error)) from error

    return read


def _tester(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return test


to_ip = _reader("net.IP", _parse_address)
is_ip = _tester(_parse_address)
to_cidr = _reader("net.CIDR", _parse_network)
is_cidr = _tester(_parse_network)


def ip_is_canonical(text: str) -> bool:
    return str(to_ip(text).content) == text


def family(value: Opaque) -> int:
    return int(value.content.ip.version)


def _address_test(test: Callable[[_Address], bool]) -> Callable[[Opaque], bool]:
    return lambda value: test(value.content.ip)


def _is_link_local_multicast(ip: _Address) -> bool:
    if ip.version == 4:
        return int(ip) >> 8 == 0xE00000
    return int(ip) >> 120 == 0xFF and (int(ip) >> 112) & 0x0F == 2


def _is_global_unicast(ip: _Address) -> bool:
    # As in Go (netip.Addr.IsGlobalUnicast), private addresses are global unicast, and the broadcast address is not.
    broadcast = ip.version == 4 and int(ip) == 0xFFFFFFFF
    return not (broadcast or ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local)


ADDRESS_TESTS: dict[str, Callable[[Opaque], bool]] = {
    "isUnspecified": _address_test(lambda ip: ip.is_unspecified),
    "isLoopback": _address_test(lambda ip: ip.is_loopback),
    "isLinkLocalMulticast": _address_test(_is_link_local_multicast),
    "isLinkLocalUnicast": _address_test(lambda ip: ip.is_link_local),
    "isGlobalUnicast": _address_test(_is_global_unicast),
}


def contains_ip(network: Opaque, argument: Any) -> bool:
    address: Address = argument.content if isinstance(argument, Opaque) else to_ip(argument).content
    subnet: Network = network.content
    if subnet.address.width != address.width:
        return False
    shift = address.width - subnet.prefix
    return int(subnet.address.ip) >> shift == int(address.ip) >> shift


def contains_cidr(network: Opaque, argument: Any) -> bool:
    inner: Network = argument.content if isinstance(argument, Opaque) else to_cidr(argument).content
    subnet: Network = network.content
    return subnet.prefix <= inner.prefix and contains_ip(network, Opaque("net.IP", inner.address))


def cidr_ip(network: Opaque) -> Opaque:
    return Opaque("net.IP", network.content.address)


def prefix_length(network: Opaque) -> int:
    return int(network.content.prefix)


def masked(network: Opaque) -> Opaque:
    return Opaque("net.CIDR", network.content.masked)


# URLs

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*", re.ASCII)
_PORT = re.compile(r":[0-9]*", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]*")
_SAFE_PATH = "/$&+,:;=@!*'()~-._"


@dataclass(frozen=True)
class Url:
    """URL with the parts of Go's `url.Parse`. It is absolute, or begins with a slash."""

    scheme: str
    host: str
    path: str
    query: str
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def parse_url(text: str) -> Url:
    """Parse a URL that `url.ParseRequestURI` accepts. Raise ValueError for other texts."""
    if not text or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise ValueError(f"{text!r} is no URL: it is empty or has control characters")
    body = text.partition("#")[0]
    scheme, remainder = _split_scheme(text, body)
    remainder, __, query = remainder.partition("?")
    if not remainder.startswith("/") and (scheme or text != "*"):
        if not scheme:
            raise ValueError(f"{text!r} is no URL: it has neither a scheme nor a leading slash")
        return Url(scheme, "", "", query, text)
    host = ""
    if remainder.startswith("//") and (scheme or not remainder.startswith("///")):
        host, slash, path = remainder[2:].partition("/")
        remainder = slash + path
        host = _checked_host(text, host.rpartition("@")[2])
    if _BAD_ESCAPE.search(remainder):
        raise ValueError(f"{text!r} has an escape that is none")
    return Url(scheme, host, remainder, query, text)


def _split_scheme(text: str, body: str) -> tuple[str, str]:
    scheme, colon, remainder = body.partition(":")
    if colon and _SCHEME.fullmatch(scheme):
        return scheme.lower(), remainder
    if text.startswith(":"):
        raise ValueError(f"{text!r} has no scheme before its colon")
    return "", body


def _checked_host(text: str, host: str) -> str:
    if host.startswith("["):
        name, closing, port = host.rpartition("]")
        if not closing or (port and not _PORT.fullmatch(port)) or not name[1:]:
            raise ValueError(f"{text!r} has a host that is none")
    else:
        name, colon, port = host.partition(":")
        if colon and not _PORT.fullmatch(":" + host.rpartition(":")[2]):
            raise ValueError(f"{text!r} has a port that is no number")
    if not _HOST.fullmatch(host) or "%" in host:
        raise ValueError(f"{text!r} has a sign in its host that is not allowed")
    return host


to_url = _reader("kubernetes.URL", parse_url)
is_url = _tester(parse_url)


def _hostname(url: Opaque) -> str:
    host: str = url.content.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _port(url: Opaque) -> str:
    host: str = url.content.host
    tail = host.rpartition("]")[2]
    return tail.rpartition(":")[2] if ":" in tail else ""


def _escaped_path(url: Opaque) -> str:
    # Existing escapes are kept. Characters that Go would escape are escaped.
    return urllib.parse.quote(url.content.path, safe=_SAFE_PATH + "%[]")


def _query(url: Opaque) -> CelMap:
    entries: dict[Any, Any] = {}
    for pair in url.content.query.split("&"):
        key, __, value = pair.partition("=")
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            entries.setdefault(urllib.parse.unquote_plus(key), []).append(urllib.parse.unquote_plus(value))
    return CelMap(entries)


URL_PARTS: dict[str, Callable[[Opaque], Any]] = {
    "getScheme": lambda url: url.content.scheme,
    "getHost": lambda url: url.content.host,
    "getHostname": _hostname,
    "getPort": _port,
    "getEscapedPath": _escaped_path,
    "getQuery": _query,
}
