# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Steps that turn the observed state of one API server into the desired state, and the edges between them.

A step follows from observed and desired state, never from what an earlier run did. A run that is killed therefore
leaves nothing behind but state, from which the next run makes its own plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.conditions import Condition
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.graph import Needs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object


class Edge(NamedTuple):
    """Relation of a step to an earlier one.

    `after`: the earlier step has ended, however it ended. `until`: the condition of the earlier step holds. `unless`:
    the earlier step failed; then this step is not run.
    """

    kind: Literal["after", "until", "unless"]
    earlier: str
    """ID of a step or a group."""
    reason: str = ""
    """Message of a step that the edge stops, with "{}" for the earlier steps. Without a message it has no result. Of
    `after`, why the step comes later."""


@dataclass(frozen=True, kw_only=True)
class Write:
    """Write an object."""

    key: Key
    desired: Object
    live: Object | None = None
    transitional: Object | None = None
    """Form between live and desired state, which is written first."""
    finishes: bool = False
    """The transitional form was written in this run, and is replaced by the desired one."""
    creates_only: bool = False
    """The object belongs to the users from then on."""
    refusal: str = ""
    """Reason why the object cannot be written, which observation has shown."""
    edges: tuple[Edge, ...] = ()

    @property
    def id(self) -> str:
        """Return the ID of the step in its plan."""
        return step_id("finish" if self.finishes else "write", self.key)

    def __str__(self) -> str:
        return f"{'write the final form of' if self.finishes else 'write'} {self.key}"


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
    """Wait until a condition holds, for as long as the executor allows."""

    id: str
    condition: Condition
    edges: tuple[Edge, ...] = ()

    def __str__(self) -> str:
        return f"wait until {self.condition}"


Step = Write | Delete | Wait  # pylint: disable=unsupported-binary-operation


class Outcome(NamedTuple):
    """Outcome of a step. `detail`: its object, or what keeps its condition from being true."""

    succeeded: bool
    detail: str


@dataclass(frozen=True)
class ChangePlan:
    """Steps for one API server, in an order that their edges allow."""

    steps: tuple[Step, ...] = ()
    last: tuple[Delete | Wait, ...] = ()
    """Steps that follow the inventory of the other ones."""
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Steps and other groups by the ID of a group, which stands for all of them."""

    def has_changes(self, kept: Collection[Key] = ()) -> bool:
        """Return whether there is an object to write or delete. `kept`: objects that no run deletes as they are now."""
        return any(
            step.key not in kept if isinstance(step, Delete) else isinstance(step, Write) and not step.refusal
            for step in self.every
        )

    @property
    def conditional_deletions(self) -> Iterator[Key]:
        """Return the objects that are only deleted if a condition holds that no run waits for."""
        checked = {step.id for step in self.every if isinstance(step, Wait) and step.condition.is_checked}
        for step in self.every:
            if isinstance(step, Delete) and any(edge.earlier in checked for edge in step.edges):
                yield step.key

    @property
    def every(self) -> Iterator[Step]:
        """Return all steps in their order."""
        yield from self.steps
        yield from self.last

    def refusal(self, step: Step, outcomes: Mapping[str, Outcome]) -> str | None:
        """Return the message of the first edge that stops a step, None if the step can run."""
        stopped: dict[str, list[str]] = {}
        for edge in step.edges:
            if edge.kind != "after":
                failed = [outcomes[key] for key in self._members(edge.earlier) if key in outcomes]
                details = [outcome.detail for outcome in failed if not outcome.succeeded]
                if details:
                    stopped.setdefault(edge.reason, []).extend(details)
        reason = next(iter(stopped), None)
        return None if reason is None else reason.replace("{}", listed(stopped[reason]))

    def graph(self) -> Needs:
        """Return the steps and groups, each with those that come before it."""
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
    """Return the ID of the step that does something with an object."""
    return f"{verb} {'/'.join(key)}"
