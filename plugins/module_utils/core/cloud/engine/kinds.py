# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Declaration of the kinds of objects in a cloud: one table for each provider.

An object is a Resource: an entry of the list of a plan. The response of its API is its actual state. Only the fields of
its body that the table of its kind declares are compared with the actual state. All other fields are sent when the
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
"""Meaning of the state of an object. `degraded`: it works in part, and is kept. `failed`: it never became usable, so it
is deleted and created again. `changing`: it is usable, and a change is in progress."""


class Resource(TypedDict):
    """An entry of a plan.

    `key`: its name in the list. `name`: its name in the cloud. `parent`: its scope, such as `projects/p/global` or a
    region. `body`: the fields for its API; values may be references to other objects (graph.py). `needs`: keys of
    objects that must exist before it; references are also dependencies. `initial`: additional fields for its creation,
    which are not compared later, because existing objects keep their values.
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
    """State of an object.

    `word`: the state in the API, empty for a kind without states. `causes`: the causes of a degraded or failed object,
    as codes and messages. `remediation`: the fix.
    """

    word: str = ""
    phase: Phase = "ready"
    causes: tuple[tuple[str, str], ...] = ()
    remediation: str = ""

    @property
    def usable(self) -> bool:
        """Return True if no wait is necessary: no change is in progress, even if the object is not healthy."""
        return self.phase in ("ready", "degraded", "failed")

    @property
    def ending(self) -> bool:
        """Return True if the object must be created again: it is being deleted, or never became usable."""
        return self.phase in ("failed", "deleting")

    @property
    def message(self) -> str:
        """The causes in one line; empty without causes."""
        return "; ".join(
            ": ".join(filter(None, (code, text.rstrip(". ")))) for code, text in self.causes if code or text
        )


@dataclass(frozen=True)
class Field:
    """A field of a body that is compared with the actual state if the body has it.

    `path`: its path in the body, with dots. `same`: the comparison of the actual with the desired value. `actual`: its
    path in the actual state, if that differs. `update`: the update of the provider that changes it; empty if no update
    can. `compared`: the part of the actual value that is compared. `possible`: True if an update can change the actual
    to the desired value. `remediation`: the fix if no update can, with {before} and {after} in it. `effect`: the side
    effect of the update in messages ("all its nodes are replaced").
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

    `title`: its name in messages. `id`: the field of the actual state that identifies objects of this kind, if they can
    be renamed; empty if their names identify them. `owner`: the field (with dots) with the owner labels: a mapping, a
    list of `{"Key": .., "Value": ..}`, or a text such as a description; empty if objects of this kind have no owner.
    `status`: the field with the word for its state; empty for a kind without states. `phases`: the phases of these
    words; any other word is `changing`.

    `part_of`: the kind of object that deletes it at its own deletion, and may create it; the `parent` of a part is the
    scope of that object. `never_deleted`: it is kept when everything else is deleted. `uses`: kinds of objects that
    cannot be deleted while an unlisted object of this kind uses them. `computed`: fields of the actual state that any
    update may change. `usual`: the usual time until a new object is ready, if it is minutes ("2 to 5 min").
    `has_nodes`: pods run on it, and are lost when it is deleted.
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
