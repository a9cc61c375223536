# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Declaration of the kinds of objects that a cloud has: one table for each provider.

An object is a Resource: one of the list that a plan gives. What an API returns of it is its actual state. The
fields of its body that the table of its kind declares are compared with the actual state; all others are sent when the
object is created, and never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from . import compare

Actual = Mapping[str, Any]
"""An object as its API returns it."""
Compare = Callable[[Any, Any], bool]
"""A comparison of the actual with the desired value, in this order."""
Phase = Literal["ready", "creating", "changing", "degraded", "failed", "deleting"]
"""Meaning of the state of an object. `degraded`: it works in part, and stays. `failed`: it never became usable,
so it is deleted and created again. `changing`: it can be used, and is not at rest."""


class Resource(TypedDict):
    """An object as a plan lists it.

    `key`: its name in the list. `name`: its name in the cloud. `parent`: what it is in, such as `projects/p/global` or
    a region. `body`: the fields that its API takes; values may be references to other objects (graph.py).
    `needs`: keys of what has to exist before; references are needs, too. `initial`: more fields that it is created
    with, which are not compared later, as objects that exist keep what they have.
    """

    key: str
    kind: str
    name: str
    parent: str
    body: dict[str, Any]
    needs: list[str]
    initial: NotRequired[Mapping[str, Any]]


@dataclass(frozen=True)
class State:
    """`word`: what the API says, empty for a kind without states. `causes`: why it is degraded or failed, as codes and
    messages. `remediation`: what to do about them."""

    word: str = ""
    phase: Phase = "ready"
    causes: tuple[tuple[str, str], ...] = ()
    remediation: str = ""

    @property
    def usable(self) -> bool:
        """Return true if there is nothing to wait for: it is at rest, well or not."""
        return self.phase in ("ready", "degraded", "failed")

    @property
    def ending(self) -> bool:
        """Return true if it has to be created again: it is being deleted, or never became usable."""
        return self.phase in ("failed", "deleting")

    @property
    def message(self) -> str:
        """The causes in one line; empty without any."""
        return "; ".join(
            ": ".join(filter(None, (code, text.rstrip(". ")))) for code, text in self.causes if code or text
        )


@dataclass(frozen=True)
class Field:
    """A field of a body that is compared with the actual state, when the body has it.

    `path`: its place in the body, with dots. `same`: whether the actual value is as desired. `actual`: its place in
    the actual state, when that is another. `update`: the update of the provider that changes it; empty when none
    does. `compared`: the part of the actual value that is compared. `possible`: whether an update can turn
    one value into the other. `remediation`: what to do when none can, with {before} and {after} in it. `effect`: what
    the update does beside it, for people ("all its nodes are replaced").
    """

    path: str
    same: Compare = compare.value
    actual: str = ""
    update: str = ""
    compared: Callable[[Any, Any], Any] = compare.narrowed
    possible: Compare | None = None
    remediation: str = ""
    effect: str = ""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of object.

    `title`: its name in messages. `id`: the field of the actual state that identifies objects of this kind, where
    they can be renamed; empty where their names do. `owner`: the field (with dots) with the owner labels: a mapping, a
    list of `{"Key": .., "Value": ..}`, or a text such as a description; empty when objects of this kind have no owner.
    `status`: the field with the word for its state; empty for a kind without states. `phases`: what these words come
    to; any other is `changing`. `part_of`: the kind of object that takes it along when it is deleted, and may create
    it; the `parent` of a part is the scope of that object. `never_deleted`: it stays when everything else is deleted.
    `uses`: kinds of objects that cannot be deleted while an unlisted object of this kind uses them. `computed`: fields
    of the actual state that any update may change. `usual`: how long it usually takes until a new one is ready, where
    that is minutes ("2 to 5 min"). `has_nodes`: pods run on it, and are lost when it is deleted.
    """

    title: str
    id: str = ""
    fields: tuple[Field, ...] = ()
    owner: str = ""
    status: str = ""
    phases: Mapping[str, Phase] = field(default_factory=dict)
    part_of: str = ""
    never_deleted: bool = False
    uses: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    usual: str = ""
    has_nodes: bool = False

    def state(self, actual: Actual) -> State:
        """Return the state of an object of this kind, without causes."""
        status_text = str(compare.at(actual, self.status) or "") if self.status else ""
        return State(status_text, self.phases.get(status_text, "changing")) if status_text else State()
