# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reconciliation of one object in a cloud: creation, update, wait, deletion.

Changes are computed from a recent read, because the survey may be an hour old, and autoscalers, users and other runs
change objects in the meantime.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..core.cloud.engine.diff import Change, diff
from ..core.cloud.engine.kinds import Actual, Resource, State
from ..core.text import some
from .errors import CloudError
from .provider import Action, Operation, Provider
from .task import Changes
from .waiting import WAIT_TIMEOUT, PollResult, Wait

_ROUNDS = 10
"""Attempts at an object that other clients change at the same time, each with a new read."""
_PAUSE = 5.0
"""Maximum seconds between two of these attempts: a read right after a change may still return the previous state."""
_BUSY_DELAY = 15.0
"""Maximum seconds between two attempts at a change of a busy object."""
_HOLDERS = 8
"""Maximum number of users of an object in a message."""
_NEW_SECONDS = 120.0
"""Seconds for which a new object may be unknown to other services, or may not be found."""


@dataclass(frozen=True)
class Done:
    """The result of one object.

    `created`, `changed`: by this run; `changed` is also true for a created object. `begun`: it is not done, and the run
    did not wait for it; `pending` has the message.
    """

    actual: Actual | None = None
    created: bool = False
    changed: bool = False
    begun: bool = False
    pending: str = ""


class LaterError(Exception):
    """A change is in progress, or cannot start now, and the run does not wait for it. `str()`: the pending change."""


def refusals(title: str, changes: Sequence[Change]) -> list[str]:
    """Return a sentence for each immutable change."""
    return [f"{title}: cannot change {change}" for change in changes if change.action == "immutable"]


@dataclass(frozen=True)
class Run:
    """Settings of one reconciliation. `until_done`: wait for started changes."""

    provider: Provider
    changes: Changes
    wait: Wait
    until_done: bool

    def state(self, resource: Resource, actual: Actual | None) -> State:
        """Return the state of an object. The state of an object that is still being created (empty) is unknown."""
        return self.provider.state(resource, actual) if actual else State()

    def phase(self, resource: Resource, actual: Actual | None) -> str:
        """Return the phase of the state of an object."""
        return self.state(resource, actual).phase

    def as_desired(self, resource: Resource, actual: Actual) -> bool:
        """Return True if an object needs no change."""
        at_rest = self.phase(resource, actual) in ("ready", "changing", "degraded")
        return at_rest and not self.diff(resource, actual)

    def diff(self, resource: Resource, actual: Actual) -> list[Change]:
        """Return the different fields."""
        return diff(self.provider.kinds[resource["kind"]], actual, resource["body"])

    def conflict(self, resource: Resource, actual: Actual) -> str:
        """Return the reason why this fleet does not own an object; empty if it does."""
        kind, title = self.provider.kinds[resource["kind"]], self.provider.title(resource)
        return self.provider.owners.conflict(kind, title, actual, resource["body"])

    def warn(self, resource: Resource, actual: Actual | None) -> None:
        """Add warnings about an object that is degraded or failed. Such an object recovers by itself, or requires a
        user."""
        state = self.state(resource, actual)
        if state.phase in ("degraded", "failed"):
            self.changes.warnings.append(self.failure(resource, state))
        if actual:
            self.changes.warnings.extend(self.provider.warnings(resource, actual))

    def failure(self, resource: Resource, state: State) -> str:
        """Return a sentence about a bad state, with a fix."""
        reason = state.message or f"{self.provider.error.cloud} gives no reason"
        return f"{self.provider.title(resource)} is {state.word}: {reason}. {state.remediation}".rstrip(". ")

    def record(self, verb: Literal["create", "delete"], resource: Resource) -> None:
        """Report an object as created or deleted: its fields, or its name if it has no fields."""
        fields = resource["body"] or {"name": resource["name"]}
        previous_fields, current_fields = (None, fields) if verb == "create" else (fields, None)
        self.changes.record(resource["key"], previous_fields, current_fields)
        self.changes.report(f"{verb} {self.provider.title(resource)}")

    def record_changes(self, resource: Resource, changes: Sequence[Change]) -> None:
        """Report fields as changed."""
        if changes:
            previous_fields = {change.field: change.before for change in changes}
            self.changes.record(resource["key"], previous_fields, {change.field: change.after for change in changes})
            fields = ", ".join(change.field for change in changes)
            effects = dict.fromkeys(change.effect for change in changes if change.effect)
            self.changes.report("; ".join((f"update {self.provider.title(resource)}: {fields}", *effects)))

    def find_begun(self, resource: Resource) -> Actual | None:
        """Return an object after its creation by an earlier run; empty if the creation is in progress and the run does
        not wait."""
        actual = self.provider.find(resource)
        if actual is not None:
            return actual
        operation = self.provider.creation_under_way(resource)
        if operation is None:
            return None
        if self.changes.check_mode or not self.until_done:
            return {}
        self.over(operation)
        return self.provider.find(resource)

    def over(self, operation: Operation, usual: str = "") -> CloudError | None:
        """Wait for an operation, and return its error, or None. `usual`: usual duration."""
        if not self.until_done:
            raise LaterError(f"{operation.title} is under way: run again")
        return operation.over(self.wait, usual)

    def finish(self, operation: Operation | None, usual: str = "") -> None:
        """Wait for an operation, and raise its error."""
        failed = self.over(operation, usual) if operation else None
        if failed:
            raise failed

    def send(self, action: Action) -> Operation | None:
        """Send a change. It is sent again while the object is busy, or while a dependency is not known everywhere.

        After the time limit, a change that is too early raises the error of the cloud.
        """
        limit = time.monotonic() + min(_NEW_SECONDS, self.wait.timeout)

        def attempt() -> PollResult:
            try:
                return PollResult(f"{action.title}: begun", done=True, value=action.send())
            except CloudError as error:
                if not (error.busy or (error.too_early and time.monotonic() < limit)):
                    raise
                return PollResult(_waiting(action.title, error))

        begun: Operation | None = self.until(attempt, f"{action.title} to begin", _BUSY_DELAY)
        return begun

    def until(self, poll: Callable[[], PollResult], what: str, delay: float = math.inf, usual: str = "") -> Any:
        """Poll, and return the value. Wait with messages only if the first poll is not done.

        `delay`: maximum seconds between two polls. `usual`: usual duration.
        """
        first_poll = poll()
        if first_poll.done and not first_poll.failure:
            return first_poll.value
        if not self.until_done and not first_poll.failure:
            raise LaterError(f"{first_poll.message}: run again")
        polls = [first_poll]
        return self.wait.at_most(delay).until(lambda: polls.pop() if polls else poll(), what, usual)

    def pause(self, attempt: int) -> None:
        """Pause before every attempt except the first."""
        if attempt:
            time.sleep(min(self.wait.delay, _PAUSE))


class Reconciler:
    """One object with resolved references. Nothing else in its scope is changed at the same time."""

    def __init__(self, run: Run, resource: Resource) -> None:
        self._run = run
        self._provider = run.provider
        self._resource = resource
        self._title = run.provider.title(resource)
        self._usual = run.provider.kinds[resource["kind"]].usual
        self._done = Done()

    def present(self, surveyed: Actual | None) -> Done:
        """Create or update the object. `surveyed`: None if it did not exist."""
        try:
            actual = self._owned()
            if actual is not None and surveyed is None:
                # The object was created with its container, or by another run.
                self._created()
            actual = None if actual is None else self._settled(actual)
            actual = self._create() if actual is None else self._update(actual)
        except LaterError as later:
            return self._begun(later)
        self._run.warn(self._resource, actual)
        return replace(self._done, actual=actual)

    def absent(self) -> Done:
        """Delete the object, if it exists."""
        try:
            actual = self._run.find_begun(self._resource)
            if actual is not None and not actual:
                raise LaterError(f"{self._title} is being created: run again")
            if actual is not None:
                self._check_owner(actual)
                self._delete(actual)
        except LaterError as later:
            return self._begun(later)
        return self._done

    def _begun(self, later: LaterError) -> Done:
        actual = self._done.actual or self._provider.find(self._resource)
        return replace(self._done, actual=actual, begun=True, pending=str(later))

    def _created(self) -> None:
        self._done = replace(self._done, created=True, changed=True)
        self._run.record("create", self._resource)

    def _owned(self) -> Actual | None:
        actual = self._provider.find(self._resource)
        if actual is not None:
            self._check_owner(actual)
        return actual

    def _check_owner(self, actual: Actual) -> None:
        conflict = self._run.conflict(self._resource, actual)
        if conflict:
            raise self._provider.error(conflict)

    def _settled(self, actual: Actual) -> Actual | None:
        """Return the object after its creation or deletion is complete; None if it must be created."""
        state = self._run.state(self._resource, actual)
        if state.phase == "failed":
            why = f" ({state.message})" if state.message else ""
            self._run.wait.messages(f"{self._title} is {state.word}{why}: it is deleted and created again")
            self._delete(actual, record=False)
            return None
        if state.phase == "deleting":
            self._until_gone(actual)
            return None
        return self._until_ready() if state.phase == "creating" else actual

    # Creation

    def _create(self) -> Actual:
        """Create the object. An object that another run created in the meantime is compared."""
        for attempt in range(_ROUNDS):
            self._run.pause(attempt)
            action = self._provider.creation(self._resource)
            try:
                operation = self._run.send(action)
            except CloudError as error:
                if not (error.exists or error.outdated):
                    raise
                refused = error
                actual = self._adopted() if error.exists else self._owned()
                if actual is not None:
                    return actual
            else:
                self._created()
                self._run.finish(operation, self._usual)
                # An update sets the fields that the creation does not support.
                return self._update(self._until_ready(new=True))
        raise refused

    def _adopted(self) -> Actual | None:
        """Return the object that an earlier attempt or another run created, once it matches the desired state.

        None if that creation failed, or the object is not found yet.
        """
        if self._provider.find(self._resource) is None:
            operation = self._provider.creation_under_way(self._resource)
            if operation is not None:
                self._run.over(operation)
        if self._owned() is None:
            return None
        self._created()
        return self._update(self._until_ready())

    # Update

    def _update(self, actual: Actual) -> Actual:
        """Return the object after every different field is changed.

        If it is busy, or was changed in the meantime, it is read and compared again.
        """
        reading: list[Actual] = [actual]
        limit = time.monotonic() + _NEW_SECONDS

        def attempt() -> PollResult:
            actual = reading.pop() if reading else self._read_again()
            try:
                return PollResult("", done=True, value=self._updated(actual))
            except CloudError as error:
                waits = error.busy or (error.too_early and time.monotonic() < limit)
                # The absent object might be a reference of the call, and might never appear.
                if not (waits or error.outdated or (error.absent and not error.too_early)):
                    raise
                if waits and not self._run.until_done:
                    raise LaterError(f"{_waiting(self._title, error)}: run again") from None
                return PollResult(_waiting(self._title, error) if waits else f"{self._title}: changed meanwhile")

        updated: Actual = self._run.wait.at_most(_BUSY_DELAY).until(attempt, f"update {self._title}")
        return updated

    def _read_again(self) -> Actual:
        actual = self._owned()
        if actual is None:
            raise self._provider.error(f"update {self._title}", "it was deleted meanwhile", hint="Run again")
        return actual

    def _updated(self, actual: Actual) -> Actual:
        changes = self._run.diff(self._resource, actual)
        refused = refusals(self._title, changes)
        if refused:
            raise self._provider.error(".\n".join(refused))
        if not changes:
            return actual
        for action in self._provider.updates(self._resource, actual, changes):
            operation = action.send()
            self._changed(changes)
            self._run.finish(operation)
        return self._until_ready()

    def _changed(self, changes: Sequence[Change]) -> None:
        if not self._done.created:
            self._run.record_changes(self._resource, changes)
        self._done = replace(self._done, changed=True)

    # Deletion

    def _delete(self, actual: Actual, *, record: bool = True) -> None:
        for attempt in range(_ROUNDS):
            self._run.pause(attempt)
            try:
                if self._run.phase(self._resource, actual) != "deleting":
                    self._send_deletion(actual, record=record)
                self._until_gone(actual)
                return
            except CloudError as error:
                if error.absent:
                    return
                if not error.outdated:
                    raise
                refused, live_object = error, self._owned()
                if live_object is None:
                    return
                actual = live_object
        raise refused

    def _send_deletion(self, actual: Actual, *, record: bool) -> None:
        for action in self._provider.deletion(self._resource, actual):
            try:
                operation = self._run.send(action)
            except CloudError as error:
                if error.code != WAIT_TIMEOUT and not error.too_early:
                    raise
                raise self._still_held(actual, error) from None
            self._done = replace(self._done, changed=True)
            if record:
                self._run.record("delete", self._resource)
            self._run.finish(operation)

    def _still_held(self, actual: Actual, error: CloudError) -> CloudError:
        """Return the error of a deletion that was rejected for too long, with the last users of the object."""
        try:
            holders = list(self._provider.holders(self._resource, actual))
        except CloudError as unread:
            hint = f"What uses it could not be read: {unread}"
        else:
            if not holders:
                return error
            hint = f"{self._title} is used by {some(holders, _HOLDERS)}. Remove these, then run again"
        final_error = self._provider.error(str(error), hint=hint)
        final_error.code, final_error.message = error.code, error.message
        return final_error

    # Waiting

    def _until_ready(self, *, new: bool = False) -> Actual:
        """Return the object once it is ready. `new`: it was just created, and may not be found for a while."""
        created = time.monotonic()

        def poll() -> PollResult:
            actual = self._provider.find(self._resource)
            if actual is None:
                if new and time.monotonic() - created < _NEW_SECONDS:
                    return PollResult(f"{self._title} is not found yet")
                return PollResult(
                    f"{self._title} is not there", failure=f"{self._title} was deleted meanwhile. Run again"
                )
            self._done = replace(self._done, actual=actual)
            state = self._run.state(self._resource, actual)
            failure = self._run.failure(self._resource, state) if state.phase == "failed" else ""
            message = f"{self._title} is {state.word or 'there'}"
            return PollResult(message, done=state.usable, failure=failure, value=actual)

        ready: Actual = self._run.until(poll, f"{self._title} to be ready", usual=self._usual if new else "")
        return ready

    def _until_gone(self, before: Actual) -> None:
        # A read right after the call may still return the previous state.
        phases = [self._run.phase(self._resource, before)]

        def poll() -> PollResult:
            actual = self._provider.find(self._resource)
            if actual is None:
                return PollResult(f"{self._title} is gone", done=True, value={})
            state = self._run.state(self._resource, actual)
            failed = state.phase == "failed" and phases[-1] != "failed"
            phases.append(state.phase)
            failure = f"it could not be deleted: {self._run.failure(self._resource, state)}" if failed else ""
            return PollResult(f"{self._title} is {state.word or 'there'}", failure=failure)

        self._run.until(poll, f"{self._title} to be gone")


def _waiting(title: str, error: CloudError) -> str:
    return f"{title}: waits for {error.too_early or error.blocker}"
