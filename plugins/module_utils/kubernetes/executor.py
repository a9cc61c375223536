# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Executor of a change plan on one API server. Steps, conditions and messages depend only on the plan, not on kinds.

The inventory is written before the first object with the keys of all objects, and after the last object with the
results. The inventory of an aborted run therefore contains all created objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..core.applying.inventory import Key
from ..core.applying.readiness import readiness
from ..core.change.steps import ChangePlan, Delete, Outcome, Step, Wait, Write
from .write import CHANGES, GONE, Result, Sender, result


class Conditions(Protocol):
    """Wait conditions of steps."""

    def wait(self, waits: Sequence[Wait], results: Mapping[Key, Result]) -> Mapping[str, str]:
        """Wait for conditions of one kind. Return the reason of each failed condition by step ID."""


class Inventory(Protocol):
    """Inventory of applied objects."""

    def begin(self, keys: Iterable[Key]) -> None:
        """Write the keys of objects before they are created."""

    def finish(self, results: Mapping[Key, Result], unfinished: Collection[Key]) -> None:
        """Write the applied and deleted objects. `unfinished`: objects that still have a transitional version."""


@dataclass
class Executor:
    """Executor of one plan. `results`: current result of each object."""

    sender: Sender
    conditions: Conditions
    inventory: Inventory
    results: dict[Key, Result] = field(default_factory=dict)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _unfinished: set[Key] = field(default_factory=set)

    def run(self, plan: ChangePlan) -> Mapping[Key, Result]:
        """Run all steps. Raises errors of the whole server, but not of a single object."""
        writes = [step for step in plan.steps if isinstance(step, Write) and not step.creates_only]
        self.inventory.begin(step.key for step in writes if not step.refusal)
        self._run(plan, plan.steps)
        self.inventory.finish(self.results, self._unfinished)
        self._run(plan, plan.last)
        return self.results

    def _run(self, plan: ChangePlan, steps: Sequence[Step]) -> None:
        waits: list[Wait] = []
        for step in steps:
            if waits and not (isinstance(step, Wait) and type(step.condition) is type(waits[0].condition)):
                self._wait(waits)
                waits = []
            refusal = plan.refusal(step, self._outcomes)
            if refusal is not None:
                self._outcomes[step.id] = self._stopped(step, refusal)
            elif isinstance(step, Wait):
                waits.append(step)
            else:
                self._outcomes[step.id] = self._write(step) if isinstance(step, Write) else self._delete(step)
        self._wait(waits)

    def _wait(self, waits: Sequence[Wait]) -> None:
        """Wait simultaneously for consecutive conditions of the plan."""
        is_read = waits and (waits[0].condition.is_checked or not self.sender.check_mode)
        reasons = self.conditions.wait(waits, self.results) if is_read else {}
        for wait in waits:
            self._outcomes[wait.id] = Outcome(wait.id not in reasons, reasons.get(wait.id, ""))

    def _stopped(self, step: Step, refusal: str) -> Outcome:
        """Store the result of a step that is not run. A step without a message has no result."""
        if isinstance(step, Wait) or not refusal:
            return Outcome(False, "" if isinstance(step, Wait) else str(step.key))
        if isinstance(step, Delete):
            self.results[step.key] = result(step.live, "skipped", refusal, before=step.live)
        elif step.stage:
            transitional = self.results[step.key]
            action = transitional.action if transitional.action in CHANGES else "skipped"
            self.results[step.key] = replace(transitional, action=action, message=refusal)
        else:
            self.results[step.key] = result(step.desired, "failed", refusal, before=step.live)
        return Outcome(False, str(step.key))

    def _write(self, step: Write) -> Outcome:
        if step.refusal:
            return self._stopped(step, step.refusal)
        if step.creates_only:
            response = self.sender.create(step.desired)
        elif step.stage:
            response = self._next_version(step)
        else:
            is_transitional = step.transitional is not None and not self.sender.check_mode
            response = self.sender.send((step.transitional if is_transitional else None) or step.desired, step.live)
            self._unfinished.update([step.key] if is_transitional else [])
        if response is not None:
            self.results[step.key] = self._with_readiness(response)
        return Outcome(response is None or response.action != "failed", str(step.key))

    def _next_version(self, step: Write) -> Result:
        previous = self.results[step.key]
        if self.sender.check_mode:
            return previous
        if step.finishes:
            self._unfinished.discard(step.key)
        response = self.sender.send(step.desired, previous.after)
        action = response.action if response.action in (*CHANGES, "failed") else previous.action
        return replace(response, action=action, before=previous.before)

    def _with_readiness(self, response: Result) -> Result:
        if response.after is None or self.sender.check_mode:
            return response
        state = readiness(response.after)
        return replace(response, ready=state.ready, message=response.message or state.message)

    def _delete(self, step: Delete) -> Outcome:
        deletion = self.results[step.key] = self.sender.delete(step.live)
        return Outcome(deletion.action in GONE, str(step.key))
