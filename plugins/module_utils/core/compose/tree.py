# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Backends of a service beyond what one rule can name: a tree of parts, each no wider than a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, TypeVar

WIDTH = 16
"""Most backends of a rule (Gateway API reference, HTTPRouteRule.backendRefs)."""
_LEVEL_BITS = 4
_DIGEST_BITS = 256

Item = TypeVar("Item")


@dataclass(frozen=True)
class Leaf(Generic[Item]):
    """One backend, found by its name."""

    name: str
    weight: int
    item: Item


@dataclass(frozen=True)
class Part(Generic[Item]):
    """Up to WIDTH backends or parts. `key` tells it from all other parts of the tree and is empty for its root."""

    key: str
    children: tuple[Leaf[Item] | Part[Item], ...]

    @property
    def weight(self) -> int:
        """The sum of what is below."""
        return sum(child.weight for child in self.children)

    def parts(self) -> tuple[Part[Item], ...]:
        """This part and all below it, parents first."""
        below = [part for child in self.children if isinstance(child, Part) for part in child.parts()]
        return (self, *below)


def grow(leaves: Sequence[Leaf[Item]]) -> Part[Item]:
    """The tree of these backends, whose names differ.

    Up to WIDTH backends are all in the root, in the order given. More are parted by the first bits of the SHA-256 of
    their names, by as few bits of a level (at most 4) as make every part small enough. So the tree does not depend on
    the order, its parts are about equally large, and one backend more or less concerns the parts on its own way only,
    but for the few counts at which a part takes one bit more.
    """
    return _part("", [(_bits(leaf.name), leaf) for leaf in leaves])


def _part(key: str, leaves: Sequence[tuple[str, Leaf[Item]]]) -> Part[Item]:
    if len(leaves) <= WIDTH:
        return Part(key, tuple(leaf for __, leaf in leaves))
    groups = _groups(key, leaves)
    return Part(
        key,
        tuple(group[0][1] if len(group) == 1 else _part(bits, group) for bits, group in sorted(groups.items())),
    )


def _groups(key: str, leaves: Sequence[tuple[str, Leaf[Item]]]) -> dict[str, list[tuple[str, Leaf[Item]]]]:
    """The leaves by the shortest start of their bits, beyond that of this part, that parts them well enough."""
    groups: dict[str, list[tuple[str, Leaf[Item]]]] = {}
    for length in range(len(key) + 1, len(key) + _LEVEL_BITS + 1):
        groups = {}
        for bits, leaf in leaves:
            groups.setdefault(bits[:length], []).append((bits, leaf))
        if max(map(len, groups.values())) <= WIDTH:
            break
    return groups


def _bits(name: str) -> str:
    return f"{int(sha256(name.encode()).hexdigest(), 16):0{_DIGEST_BITS}b}"
