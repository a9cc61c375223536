# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Writes of one object to one API server: create, update, or recreate an object that cannot be changed."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from ..core import names
from ..core.applying.deletion import USUAL_SECONDS, deletion, is_stuck
from ..core.applying.inventory import Key
from ..core.applying.managed_fields import appliers, owned
from ..core.change.rules import is_recreated
from ..core.secrets import masked
from ..core.text import listed
from ..core.wire import Object, fields, is_being_deleted, text
from .client import FIELD_MANAGER, Client
from .errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    LockLost,
    NotFound,
    NotServed,
    Throttled,
    Unauthorized,
    Unreachable,
)
from .labelled_objects import SECRET, GroupKind
from .secret_access import SecretAccess

Action = Literal["created", "updated", "unchanged", "recreated", "deleted", "failed", "skipped"]
CHANGES: frozenset[Action] = frozenset({"created", "updated", "recreated", "deleted"})
GONE: frozenset[Action] = frozenset({"deleted", "unchanged"})
"""Actions of successful deletions."""

SERVED_SECONDS = 30.0
"""Maximum seconds until a kind is served after its CRD was applied."""

_POLL_SECONDS = 0.25
# How often an object is applied that another writer changes or makes at that very moment.
_MOST_RACES = 3
# Validation repeats the rejected value, such as a complete pod template with the secret values of its variables.
_REPEATED = re.compile(r"((?:Invalid|Unsupported|Duplicate) value: )[{\[](?:.*[}\]](?=: )|.*$)", re.DOTALL)
_VOLATILE = ("managedFields", "resourceVersion", "generation")
WHOLE_SERVER = (Unreachable, Unauthorized, Throttled, LockLost)
"""Errors that prevent all further requests to a server."""

_TWIN = "-modelplane-check"


@dataclass(frozen=True)
class Result:
    """Result for one object."""

    kind: str
    namespace: str
    name: str
    api_version: str
    action: Action
    message: str = ""
    """Reason for an object that is not ready, or a note."""
    before: Object | None = None
    """Object on the server before the write, None if it did not exist."""
    after: Object | None = None
    """Object on the server after the write, None if it does not exist."""
    ready: bool | None = None
    """True if the object is ready. None if unknown."""
    subresource: str = ""
    """Changed subresource, empty for the whole object."""

    @property
    def key(self) -> Key:
        group, slash, __ = self.api_version.partition("/")
        return Key(group if slash else "", self.kind, self.namespace, self.name)


def result(value: Object, action: Action, message: str = "", **details: Any) -> Result:
    """Return a result for an object."""
    key = Key.of(value)
    return Result(key.kind, key.namespace, key.name, text(value, "apiVersion"), action, message, **details)


def refusal(error: ApiError) -> str:
    """Return the message of an API server, without the values that it repeats."""
    return masked(_REPEATED.sub(r"\1(not shown)", str(error)))


def content(live: Object | None) -> Any:
    """Return an object without volatile fields: status, versions, and field managers."""
    if live is None:
        return None
    metadata = {key: value for key, value in fields(live, "metadata").items() if key not in _VOLATILE}
    return {**{key: value for key, value in live.items() if key != "status"}, "metadata": metadata}


@dataclass
class Sender:
    """Sender of objects to one server."""

    client: Client
    secrets: SecretAccess
    check_mode: bool = False
    force: bool = False
    new_namespaces: set[str] = field(default_factory=set)
    """Namespaces that this run creates. In check mode, their objects count as created."""
    new_kinds: set[GroupKind] = field(default_factory=set)
    """Kinds of CRDs that this run applies. In check mode, their objects count as created."""
    _gone_by: float = 0.0
    _would_be_new: set[Key] = field(default_factory=set)

    def send(self, desired: Object, before: Object | None) -> Result:
        """Create or update an object. Raise only errors of the whole server, not errors of one object."""
        try:
            outcome = (
                self._after_it_is_gone(desired, before) if is_being_deleted(before) else self._sent(desired, before)
            )
            if self.check_mode and outcome.action == "created":
                self._would_be_new.add(outcome.key)
            return outcome
        except WHOLE_SERVER:
            raise
        except ApiError as error:
            return result(desired, "failed", refusal(error), before=before)

    def create(self, desired: Object) -> Result | None:
        """Create an object that users own. Return None if the object already exists."""
        try:
            created_object = desired if self.check_mode else self.client.create(dict(desired))
        except AlreadyExists:
            return None
        except WHOLE_SERVER:
            raise
        except ApiError as error:
            return result(desired, "failed", refusal(error))
        return result(desired, "created", after=created_object)

    def delete(self, live: Object) -> Result:
        """Delete an object. Raises errors of the whole server, but not of a single object."""
        key = Key.of(live)
        try:
            existed = self.client.delete(
                text(live, "apiVersion"),
                key.kind,
                key.name,
                key.namespace,
                uid=text(live, "metadata", "uid"),
                propagation="Background",
                dry_run=self.check_mode,
            )
        except WHOLE_SERVER:
            raise
        except Conflict:
            message = "it was replaced by another object with the same name, which is not deleted"
            return result(live, "skipped", message, before=live)
        except ApiError as error:
            return result(live, "failed", str(error), before=live)
        # An object that no longer exists was deleted by another manager, and is not a change of this run.
        return result(live, "deleted" if existed else "unchanged", before=live)

    def _sent(self, desired: Object, before: Object | None) -> Result:
        key = Key.of(desired)
        if (key.group, key.kind) == SECRET and self.secrets.narrow:
            if before is None and self.secrets.would_be_open(key.namespace):
                return result(desired, "created", after=desired)
            if not self.check_mode:
                self.secrets.open(key.namespace)
        if self.check_mode and ((key.group, key.kind) in self.new_kinds or key.namespace in self.new_namespaces):
            return result(desired, "created", after=desired)
        if before is None and self._role(desired) in self._would_be_new:
            # The server reads the granted role, because the granting user must have its permissions.
            return result(desired, "created", after=desired)
        try:
            served_object = self._served(desired)
        except Conflict as error:
            return self._taken(desired, before, error)
        except Invalid as error:
            return self._recreated(desired, before, error)
        return _compared(desired, before, served_object)

    @staticmethod
    def _role(desired: Object) -> Key | None:
        """Return the role of a binding."""
        role = fields(desired, "roleRef")
        group, kind, name = (str(role.get(key) or "") for key in ("apiGroup", "kind", "name"))
        return Key(group, kind, Key.of(desired).namespace if kind == "Role" else "", name) if name else None

    def _served(self, desired: Object) -> Object:
        """Applied, by patience also right after the definition of its kind was, and when another writer was faster."""
        key = Key.of(desired)
        deadline = time.monotonic() + SERVED_SECONDS
        races = _MOST_RACES
        while True:
            try:
                return self.client.apply(dict(desired), dry_run=self.check_mode)
            except (NotServed, NotFound):
                if (key.group, key.kind) not in self.new_kinds or time.monotonic() >= deadline:
                    raise
                self.client.forget_discovery()
            except (AlreadyExists, Conflict) as error:
                races -= 1
                if not races or (isinstance(error, Conflict) and error.managers):
                    raise
            time.sleep(_POLL_SECONDS)

    def _taken(self, desired: Object, before: Object | None, error: Conflict) -> Result:
        """Return the result for a fleet object with fields of another manager.

        A manager that applies claims its fields, and only `force` overrides it. A manager that only updated an object
        (kubectl edit, a dashboard) caused drift, so its fields are overridden. Users can change the copy of a manifest
        (kubectl scale). This is not drift but a contradiction that they must resolve.
        """
        holders = {manager for manager, __ in error.managers}
        copied = names.PUBLISHED_LABEL in fields(before, "metadata", "labels")
        rivals = holders if copied else holders & (appliers(before) - {FIELD_MANAGER})
        drift = before is not None and bool(holders) and not rivals
        if not (self.force or drift):
            what = "; ".join(f"{manager} owns {path}" for manager, path in error.managers) or error.message
            hint = (
                "The manifest says otherwise: leave that out of the manifest, so that it can be set on the cluster, or "
                "write the same into both, or set force to take what the manifest says"
                if copied
                else "Have that manager give the fields up, or set force to take them"
            )
            return result(desired, "failed", f"another manager wants it otherwise: {what}. {hint}", before=before)
        applied_object = self.client.apply(dict(desired), force=True, dry_run=self.check_mode)
        message = f"taken back from {listed(holders)}: {listed(path for __, path in error.managers)}"
        return replace(_compared(desired, before, applied_object), message=message)

    def _recreated(self, desired: Object, before: Object | None, error: Invalid) -> Result:
        """Return the result for an object that the server rejects.

        If the server only rejects the change of an immutable field, and no data is lost, the object is recreated."""
        key = Key.of(desired)
        if before is None or not self._would_be_taken(desired):
            return result(desired, "failed", refusal(error), before=before)
        if not is_recreated(key):
            namespace_option = f" -n {key.namespace}" if key.namespace else ""
            return result(
                desired,
                "failed",
                f"{refusal(error)}. It cannot be changed in place: when it may be interrupted, delete it (kubectl "
                f"delete {key.kind.lower()} {key.name}{namespace_option}), and the next run recreates it",
                before=before,
            )
        if self.check_mode:
            return result(desired, "recreated", before=before, after=desired)
        self.client.delete(
            text(before, "apiVersion"), key.kind, key.name, key.namespace, uid=text(before, "metadata", "uid")
        )
        created = self._after_it_is_gone(desired, before)
        return created if created.action == "failed" else replace(created, action="recreated", before=before)

    def _would_be_taken(self, desired: Object) -> bool:
        """Return True if the server accepts the object as a new one. Otherwise, its deletion would be permanent."""
        try:
            self.client.apply(_twin(desired), dry_run=True)
        except Invalid:
            return False
        return True

    def _after_it_is_gone(self, desired: Object, before: Object | None) -> Result:
        if self.check_mode:
            message = f"it {deletion(before or {}, datetime.now(UTC))}, and is created again after the deletion"
            return result(desired, "created", message, after=desired)
        remaining = self._wait_deleted(desired, text(before, "metadata", "uid"))
        if remaining is not None:
            message = f"{Key.of(desired)} {deletion(remaining, datetime.now(UTC))}. Run again after the deletion"
            return result(desired, "failed", message, before=before)
        return result(desired, "created", after=self.client.apply(dict(desired)))

    def _wait_deleted(self, desired: Object, uid: str) -> Object | None:
        """Wait until an object is deleted. Return None, or the object if it is stuck or still exists at the deadline.
        A cluster's objects all share the deadline."""
        key = Key.of(desired)
        self._gone_by = self._gone_by or time.monotonic() + USUAL_SECONDS
        while True:
            current = self.client.get(text(desired, "apiVersion"), key.kind, key.name, key.namespace)
            if current is None or text(current, "metadata", "uid") != uid:
                return None
            if time.monotonic() >= self._gone_by or is_stuck(current, datetime.now(UTC)):
                return current
            time.sleep(_POLL_SECONDS)


def _compared(desired: Object, before: Object | None, after: Object) -> Result:
    if before is None:
        return result(desired, "created", after=after)
    action: Action = "unchanged" if content(before) == content(after) or _ours_is_same(before, after) else "updated"
    return result(desired, action, before=before, after=after)


def _ours_is_same(before: Object, after: Object) -> bool:
    """Return True if only fields of other managers changed, because they wrote before the apply."""
    owned_before = owned(before, FIELD_MANAGER)
    return owned_before is not None and owned_before == owned(after, FIELD_MANAGER)


def _twin(desired: Object) -> dict[str, Any]:
    """Return the object with an unused name."""
    metadata: Mapping[str, Any] = desired["metadata"]
    name = f"{metadata['name'][: 63 - len(_TWIN)].rstrip('-.')}{_TWIN}"
    return {**desired, "metadata": {**metadata, "name": name}}
