# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ranges of IPv4 addresses in a cloud: the private twin of a public range, overlap, reserved addresses."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network

TWIN_OFFSET = 48
"""Distance between the third octets of a public range and its private range, from the reference implementation."""

_RESERVED = (
    ("0.0.0.0/8", "addresses of this network"),
    ("127.0.0.0/8", "loopback addresses"),
    ("169.254.0.0/16", "link-local addresses, where instances ask for their metadata"),
    ("224.0.0.0/4", "multicast addresses"),
    ("240.0.0.0/4", "reserved addresses"),
)


class AddressError(ValueError):
    """A text is not a range, or a range cannot be created. The message is the rest of a sentence about the range."""


def network(cidr: str) -> IPv4Network:
    """Return a range, such as `10.0.0.0/20`. Raises AddressError."""
    if "/" not in cidr:
        raise AddressError("must be a range of IPv4 addresses, such as 10.0.0.0/16")
    try:
        loose = IPv4Network(cidr, strict=False)
    except ValueError:
        raise AddressError("must be a range of IPv4 addresses, such as 10.0.0.0/16") from None
    if str(loose) != cidr:
        raise AddressError(f"must begin with the first address of the range: write {loose}")
    return loose


def private_twin(public: IPv4Network) -> IPv4Network:
    """Return the private range of a public range: the same size, the third octet 48 higher. Raises AddressError."""
    start_address = int(public.network_address)
    third = (start_address >> 8) & 0xFF
    if third + TWIN_OFFSET > 0xFF:
        raise AddressError(
            f"has no private range: that begins {TWIN_OFFSET} higher in the third octet, which would be "
            f"{third + TWIN_OFFSET}"
        )
    twin = start_address + (TWIN_OFFSET << 8)
    if twin & int(public.hostmask):
        raise AddressError(
            f"has no private range: {TWIN_OFFSET} higher in the third octet no range of /{public.prefixlen} begins"
        )
    return IPv4Network((twin, public.prefixlen))


def within(inner: IPv4Network, outer: IPv4Network) -> bool:
    """Return True if `outer` contains all addresses of `inner`."""
    return inner.subnet_of(outer)


def reserved(of: IPv4Network, usable: Sequence[str] = ()) -> str:
    """Return the purpose of reserved addresses in a range, empty if it has none. `usable`: reserved
    ranges that a cloud can use."""
    for cidr, description in _RESERVED:
        if cidr not in usable and of.overlaps(IPv4Network(cidr)):
            return f"{description} ({cidr})"
    return ""


def suggested(outer: IPv4Network, count: int, prefix: int) -> list[str]:
    """Return `count` public ranges of /`prefix` in `outer` that overlap neither each other nor any of their private
    twins.

    The list is empty if `outer` is too small.
    """
    chosen: list[IPv4Network] = []
    used_ranges: list[IPv4Network] = []
    if not outer.prefixlen <= prefix <= 28:
        return []
    for candidate in outer.subnets(new_prefix=prefix):
        try:
            twin = private_twin(candidate)
        except AddressError:
            continue
        if within(twin, outer) and not any(_either(candidate, twin, used_range) for used_range in used_ranges):
            chosen.append(candidate)
            used_ranges += [candidate, twin]
        if len(chosen) == count:
            return [str(address_range) for address_range in chosen]
    return []


def overlapping(cidrs: Sequence[str]) -> list[tuple[int, int]]:
    """Return the pairs of indices of ranges that overlap. Raises AddressError."""
    networks = [network(cidr) for cidr in cidrs]
    return [
        (first_index, second_index)
        for first_index in range(len(networks))
        for second_index in range(first_index + 1, len(networks))
        if networks[first_index].overlaps(networks[second_index])
    ]


def _either(candidate: IPv4Network, twin: IPv4Network, other: IPv4Network) -> bool:
    return candidate.overlaps(other) or twin.overlaps(other)
