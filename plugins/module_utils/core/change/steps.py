# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Steps from the observed to the desired state of one API server, and the edges between steps.

Steps depend only on the observed and the desired state, not on earlier runs. After an aborted run, the next run plans
again from the observed state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..applying.inventory import Key
from ..cloud.engine.graph import Needs
from ..text import listed
from ..wire import Object
from .conditions import Condition


class Edge(NamedTuple):
    """Dependency of a step on an earlier step.

    kind: `after`: run after the earlier step, even if it failed.
        `until`: run only if the condition of the earlier step holds.
        `unless`: do not run if the earlier step failed.
    """

    kind: Literal["after", "until", "unless"]
    earlier: str
    """ID of a step or a group."""
    reason: str = ""
    """Message if the edge stops the step, with the placeholder "{}" for the earlier steps. A step without a message has
    no result. For `after`: reason for the order."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """Write an object."""

    key: Key
    desired: Object
    live: Object | None = None
    transitional: Object | None = None
    """Intermediate version between the live and the desired version. It is written first."""
    stage: int = 0
    """Number of the version, counted from 0 for the first write. Later steps replace the version of earlier steps."""
    finishes: bool = False
    """The step writes the last version of an object with several versions."""
    creates_only: bool = False
    """The object belongs to the users after its creation."""
    refusal: str = ""
    """Reason why the object cannot be written, according to the observed state."""
    edges: tuple[Edge, ...] = ()

    @property
    def id(self) -> str:
        """Return the ID of the step in its plan."""
        verb = "finish" if self.finishes else f"write version {self.stage + 1} of" if self.stage else "write"
        return step_id(verb, self.key)

    def __str__(self) -> str:
        version = "the final version of " if self.finishes else f"version {self.stage + 1} of " if self.stage else ""
        return f"write {version}{self.key}"


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete an object."""

    key: Key
    live: Object
    edges: tuple[Edge, ...] = ()

    @property
    def id(self) -> str:
        """Return the ID of the step in its plan."""
        return step_id("delete", self.key)

    def __str__(self) -> str:
        return f"delete {self.key}"


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Wait until a condition holds. The executor limits the duration."""

    id: str
    condition: Condition
    edges: tuple[Edge, ...] = ()

    def __str__(self) -> str:
        return f"wait until {self.condition}"


Step = Write | Delete | Wait  # pylint: disable=unsupported-binary-operation


class Outcome(NamedTuple):
    """Outcome of a step. `detail`: the object, or the reason why the condition does not hold."""

    succeeded: bool
    detail: str


@dataclass(frozen=True)
class ChangePlan:
    """Steps for one API server, in an order that satisfies all edges."""

    steps: tuple[Step, ...] = ()
    last: tuple[Delete | Wait, ...] = ()
    """Steps after the inventory of all other steps is written."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Members of each group by the ID of the group: steps and other groups."""

    def has_changes(self, kept_keys: Collection[Key] = ()) -> bool:
        """Return True if there are objects to write or delete.

        kept_keys: objects that no run deletes in their current state.
        """
        return any(
            step.key not in kept_keys if isinstance(step, Delete) else isinstance(step, Write) and not step.refusal
            for step in self.every
        )

    @property
    def conditional_deletions(self) -> Iterator[Key]:
        """Yield the objects with a deletion condition that no run waits for."""
        checked = {step.id for step in self.every if isinstance(step, Wait) and step.condition.is_checked}
        for step in self.every:
            if isinstance(step, Delete) and any(edge.earlier in checked for edge in step.edges):
                yield step.key

    @property
    def every(self) -> Iterator[Step]:
        """Yield all steps in order."""
        yield from self.steps
        yield from self.last

    def refusal(self, step: Step, outcomes: Mapping[str, Outcome]) -> str | None:
        """Return the message of the first edge that stops a step, None if the step can run."""
        details_by_reason: dict[str, list[str]] = {}
        for edge in step.edges:
            if edge.kind != "after":
                earlier = [outcomes[key] for key in self._members(edge.earlier) if key in outcomes]
                details = [outcome.detail for outcome in earlier if not outcome.succeeded]
                if details:
                    details_by_reason.setdefault(edge.reason, []).extend(details)
        reason = next(iter(details_by_reason), None)
        return None if reason is None else reason.replace("{}", listed(details_by_reason[reason]))

    def graph(self) -> Needs:
        """Return the steps and groups, with the steps and groups before each of them."""
        needs: dict[str, Sequence[str]] = {key: tuple(members) for key, members in self.groups.items()}
        needs |= {step.id: tuple(edge.earlier for edge in step.edges) for step in self.steps}
        needs |= {step.id: (*(edge.earlier for edge in step.edges), *needs) for step in self.last}
        return needs

    def _members(self, key: str) -> Iterator[str]:
        if key not in self.groups:
            yield key
        for member in self.groups.get(key, ()):
            yield from self._members(member)


def step_id(verb: str, key: Key) -> str:
    """Return the ID of a step."""
    return f"{verb} {'/'.join(key)}"
