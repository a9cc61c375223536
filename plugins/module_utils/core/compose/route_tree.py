# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tree of backends for a service with more backends than one rule allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, TypeVar

WIDTH = 16
"""Maximum number of backends of a rule (Gateway API reference, HTTPRouteRule.backendRefs)."""
_LEVEL_BITS = 4
_DIGEST_BITS = 256

Item = TypeVar("Item")


@dataclass(frozen=True)
class Leaf(Generic[Item]):
    """Backend with a unique name."""

    name: str
    weight: int
    item: Item


@dataclass(frozen=True)
class Part(Generic[Item]):
    """Node with up to WIDTH backends or parts. `key` is unique in the tree and empty for its root."""

    key: str
    children: tuple[Leaf[Item] | Part[Item], ...]

    @property
    def weight(self) -> int:
        """Sum of the weights of the children."""
        return sum(child.weight for child in self.children)

    def parts(self) -> tuple[Part[Item], ...]:
        """Return this part and all below it, parents first."""
        below = [descendant for child in self.children if isinstance(child, Part) for descendant in child.parts()]
        return (self, *below)


def build_tree(leaves: Sequence[Leaf[Item]]) -> Part[Item]:
    """Return the tree of these backends. Their names are unique.

    Up to WIDTH backends are all in the root, in the order given. More backends are divided by the first bits of the
    SHA-256 of their names. Each level uses the smallest number of bits (at most 4) that makes every part small enough.
    Therefore, the tree does not depend on the order, and its parts have about equal sizes. Adding or removing a backend
    changes only the parts on its path, except at the few counts at which a part needs one more bit.
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
    """Group the leaves by the shortest prefix of their bits, longer than `key`, that makes every group small enough."""
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
