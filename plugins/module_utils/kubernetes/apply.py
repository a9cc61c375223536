# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Apply all objects of a fleet to one API server, and prune what is no longer desired.

Nothing is sent for an object that is as desired, which the record of the last run decides: what was desired then equals
what is desired now, and the fields that our field manager owned in the live object afterwards equal those that it owns
now. So defaults, other writers' fields and the server's own way of writing a value never matter, and every drift of a
field of ours does.

The record is written before the first object, naming all that may come to be, and after the last one with what did. A
run that is killed leaves nothing that the next one does not know of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.decision import DecisionError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.deletion import deletion, is_stuck
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import (
    REPLICAS_NOTE,
    Entry,
    Key,
    Notes,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.limits import with_limits_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import (
    digest,
    labels_of_others,
    owned,
    writers,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.order import (
    DEFINITION,
    NAMESPACE,
    ordered,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.readiness import readiness, waited_for
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.routes import AI_ROUTE, with_rules_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.routes import KINDS as ROUTES
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import (
    TLS_SECRET,
    WORKLOAD_GATEWAY,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.control import system_namespace
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.pod_security import LABEL_PREFIX
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import guards, is_policy
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, listed, some
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import FIELD_MANAGER, Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.detours import Detours, took
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import CONTROL_SCOPE, RecordStore
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.labelled_objects import (
    ON_CONTROL,
    ON_WORKLOAD,
    SECRET,
    GroupKind,
    Live,
    kinds_of,
    list_labelled,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.pruning import (
    GONE,
    SYSTEM_KEY,
    is_certificate,
    prune,
    unwanted,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.route_changes import (
    FOLLOW_SECONDS,
    FOLLOWED,
    RouteChanges,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.route_guards import RouteGuards
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.route_pruning import APPLIED, Pruning
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SecretAccess
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.waiting import wait_gone, wait_ready
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import (
    CHANGES,
    Result,
    Sender,
    going,
    result,
)

_DEFINITION_SECONDS = 60.0
_AS_IT_IS = "it was there before, is used as it is, and stays"
# What several fleets can want at a time, as it is the same for all of them.
_SHARED = frozenset({NAMESPACE, DEFINITION})


@dataclass(frozen=True)
class Options:
    """Options of applying.

    `scope` separates the records of one API server that is more than one cluster of the fleet. `held` are objects of
    which it is unknown now whether they are desired, so they stay as they are, and so do those that have all labels
    (name and value) of an entry of `held_labels`. `create_namespaces`: a namespace that is not there is created,
    without our label, and never deleted; else objects in it fail. `wait`: seconds until objects are ready, without
    `wait_unchanged` only those that this run changed.
    `orphans`: where there is no record, whatever carries our label and is in no other record is taken for ours.
    `definitions`: definitions of kinds that are not desired go as well, unless there is an object of one of them.
    `notes` are those of the inventory, None for the ones that it has. `known`: digests of ModelReplicas that the state
    of the fleet knows; a cluster whose inventory has others is newer, and none of its replicas is removed.
    `pending_api_groups`: those that something else is about to install, so that in check mode their kinds count as new
    ones. `progress`: where waits are reported. `locked`: context in which objects are written and removed; what was
    read before it began is read again. It ends before this run waits until objects are ready.
    """

    fleet: str = "default"
    scope: str = ""
    prune: bool = True
    force: bool = False
    check_mode: bool = False
    wait: float = 0.0
    wait_unchanged: bool = True
    create_namespaces: bool = False
    held: frozenset[Key] = frozenset()
    held_labels: frozenset[tuple[tuple[str, str], ...]] = frozenset()
    orphans: bool = True
    definitions: bool = False
    notes: Notes | None = None
    known: frozenset[str] | None = None
    pending_api_groups: frozenset[str] = frozenset()
    progress: Progress = unseen
    locked: Callable[[], AbstractContextManager[None]] | None = None


@dataclass(frozen=True)
class Applied:
    """Results for all objects, in the order of the work; `notes` is what a person should know beside that. `differs`:
    an object, or the inventory, was not as desired; so is an object that is being deleted."""

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    differs: bool = False

    @property
    def changed(self) -> bool:
        return any(found.action in CHANGES for found in self.results)

    @property
    def failed(self) -> bool:
        return any(found.action == "failed" for found in self.results)

    @property
    def ready(self) -> bool:
        """Return True if all desired objects do what they are there for, as far as that was checked."""
        return not self.failed and all(found.ready is not False for found in self.results)


def apply(client: Client, desired: Sequence[Object], options: Options) -> Applied:
    """Apply the desired objects to one API server, and prune others. Raises ApiError when the server as a whole cannot
    be worked with; what is wrong with one object is in its result."""
    before = Counter(client.requests)
    complete = _complete(desired)
    run = _Run(client, options)
    run.compare(complete)
    if options.locked is None or options.check_mode or not run.differs:
        results = run.write()
    else:
        with options.locked():
            run = _Run(client, options)
            run.compare(complete)
            results = run.write()
    results = run.awaited(results)
    spent = Counter(client.requests)
    spent.subtract(before)
    requests = {verb: count for verb, count in spent.items() if count}
    return Applied(tuple(results), tuple(run.notes), requests, run.differs)


def _complete(desired: Iterable[Object]) -> dict[Key, Object]:
    """The objects in order, each once, with our label; with the namespace of the record unless nothing is desired."""
    found: dict[Key, Object] = {}
    for value in desired:
        metadata = fields(value, "metadata")
        labels = {**fields(metadata, "labels"), names.MANAGED_BY_LABEL: names.MANAGED_BY}
        found[Key.of(value)] = {**value, "metadata": {**metadata, "labels": labels}}
    if found:
        found.setdefault(SYSTEM_KEY, system_namespace())
    return {Key.of(value): value for value in ordered(found.values())}


def yielding(value: Object, live: Object | None) -> Object:
    """An object as it is applied: a Namespace without those Pod Security labels that a user set otherwise.

    Administrators, and the controller by which OpenShift labels namespaces, know what a cluster has to let in.
    """
    if text(value, "kind") != NAMESPACE or live is None:
        return value
    there, labels = fields(live, "metadata", "labels"), fields(value, "metadata", "labels")
    held = {key for key in labels_of_others(live, FIELD_MANAGER) if key.startswith(LABEL_PREFIX)}
    kept = {key: label for key, label in labels.items() if key not in held or there.get(key) == label}
    return {**value, "metadata": {**fields(value, "metadata"), "labels": kept}}


def desired_digest(value: Object) -> str:
    """Digest of a desired object for the record. That of a Secret is of the names of its keys alone."""
    if text(value, "kind") != "Secret":
        return digest(value)
    return digest({**value, "data": sorted(fields(value, "data")), "stringData": sorted(fields(value, "stringData"))})


def _owned_digest(live: Object) -> str:
    return "" if text(live, "kind") == "Secret" else digest(owned(live, FIELD_MANAGER))


def is_as_desired(value: Object, live: Object, entry: Entry | None) -> bool:
    """Return True if nothing has to be sent for an object."""
    if entry is None or entry.desired != desired_digest(value):
        return False
    if text(value, "kind") == "Secret":
        labels = fields(value, "metadata", "labels")
        live_labels = fields(live, "metadata", "labels")
        same = all(live_labels.get(name) == held for name, held in labels.items())
        return same and fields(live, "data") == fields(value, "data") and owned(live, FIELD_MANAGER) is not None
    return entry.owned == _owned_digest(live)


class _Run:
    """One run on one server."""

    def __init__(self, client: Client, options: Options) -> None:
        self.client = client
        self.options = options
        self.notes: list[str] = []
        self.store = RecordStore(client, options.fleet, options.scope or client.name)
        self.sender = Sender(client, options.check_mode, options.force)
        self.secrets = SecretAccess(client, check_mode=options.check_mode)
        self.guards = RouteGuards(client)
        self.routes = RouteChanges(client, FOLLOW_SECONDS, options.progress)
        self.live = Live()
        self._namespaces: dict[str, bool] = {}
        self._made: list[Result] = []
        self._desired: dict[Key, Object] = {}
        self._known: dict[Key, Result] = {}
        self._pending: list[tuple[Object, Object | None]] = []
        self._both: set[Key] = set()
        self._gone: list[Object] = []
        self._shared: list[Object] = []

    @property
    def differs(self) -> bool:
        """Return whether an object has to be written or removed."""
        return bool(self._pending or self._gone or self._shared or self._has_other_notes())

    def _has_other_notes(self) -> bool:
        return self.options.notes not in (None, self.store.notes) and bool(self._desired or self.store.own)

    def compare(self, desired: Mapping[Key, Object]) -> None:
        """Read what is there, and find out what has to be written and removed."""
        self._read(desired)
        self._desired = {key: yielding(value, self.live.objects.get(key)) for key, value in desired.items()}
        for key, value in self._desired.items():
            found = self._decide(value)
            if isinstance(found, Result):
                self._known[key] = found
            else:
                self._pending.append((self._desired[key], found[0]))
        self._gone = self._unwanted(self._desired)
        self._shared = self._left_to_others(self._desired)
        self._refuse_newer_replicas()
        self._note_deletions()

    def _note_deletions(self) -> None:
        """Note desired objects that are being deleted in check mode, because they have results otherwise, and others
        that have been for long."""
        now = datetime.now(UTC)
        self.notes += [
            f"{key} {deletion(live, now)}"
            for key, live in self.live.objects.items()
            if (is_stuck(live, now) if key not in self._desired else going(live) and self.options.check_mode)
        ]

    def _refuse_newer_replicas(self) -> None:
        """Raise DecisionError if replicas would be removed that a run applied which the state of the fleet does not
        know."""
        note, known = self.store.notes.get(REPLICAS_NOTE), self.options.known
        if known is None or not isinstance(note, dict) or note.get("digest") in known:
            return
        replicas = (fields(value, "metadata", "labels").get(names.REPLICA_LABEL) for value in self._gone)
        if removed := sorted({str(name) for name in replicas if name}):
            raise DecisionError(
                f"cluster {self.client.name} was applied from another state of the fleet than this build, which would "
                f"remove {count(len(removed), 'replica')} there ({some(removed)}): restore the build folder, or run "
                "reconcile, which adopts what runs"
            )

    def write(self) -> list[Result]:
        """Write and remove what the comparison found."""
        desired, known = self._desired, self._known
        behind = self._behind_before()
        self._record_intent([Key.of(value) for value, __ in self._pending], desired)
        known.update((found.key, found) for found in self._send(self._pending, known))
        known.update((found.key, found) for found in self._drop(known))
        removed = self._prune(self._gone, known, behind)
        self._record_outcome(desired, known, removed)
        removed += self._prune_shared(self._shared)
        return [*self._made, *(known[key] for key in desired), *removed]

    def _read(self, desired: Mapping[Key, Object]) -> None:
        self.store.read()
        kinds = kinds_of(desired.values())
        if self.store.own is None:
            # The first run, or the record is lost: what an earlier run left behind is found by label alone.
            composed = ON_CONTROL if self.options.scope == CONTROL_SCOPE else ON_WORKLOAD
            wide = self.options.orphans and (desired or self.store.error or self.options.prune)
            recorded = dict(composed) if wide else {}
        else:
            recorded = {(key.group, key.kind): entry.api_version for key, entry in self.store.own.items()}
        known = [*desired, *(self.store.own or ())]
        # Those of certificates go with them.
        issued = [Key(*SECRET, key.namespace, "") for key in known if is_certificate(key) and key not in desired]
        secrets = {SECRET: "v1"} if issued else {}
        self.live = list_labelled(self.client, {**secrets, **recorded, **kinds}, self.secrets, [*known, *issued])
        self._forget_what_goes_with_its_namespace()
        if self.store.own is None:
            # Whoever applies here at the same time wrote a record before any object that was just seen.
            error = self.store.error
            self.store.read()
            if error:
                self.notes.append(f"{error}; every object was applied again")
        left = {key.namespace for key in self.store.own or () if (key.group, key.kind) == SECRET and key not in desired}
        closed = sorted(self.live.closed.items())
        self.notes += [
            f"Secrets in {place} that are no longer desired stay: {why}" for place, why in closed if place in left
        ]
        for group_kind, why in sorted(self.live.errors.items()):
            if group_kind not in kinds:
                self.notes.append(f"{group_kind[1]} objects that are no longer desired stay: {why}")
        self._forget_kinds_that_are_gone(kinds)

    def _forget_kinds_that_are_gone(self, desired: Iterable[GroupKind]) -> None:
        """Objects of a kind whose definition was removed went with it. Where a kind is not served for another reason
        they stay in the record."""
        recorded = {(key.group, key.kind) for key in self.store.own or {}}
        unserved = sorted((recorded & self.live.not_served) - set(desired))
        if not unserved or self.store.own is None:
            return
        try:
            definitions = self.client.list("apiextensions.k8s.io/v1", DEFINITION).items
            defined = {(text(value, "spec", "group"), text(value, "spec", "names", "kind")) for value in definitions}
        except Forbidden:
            defined = set(unserved)
        for group_kind in unserved:
            if group_kind not in defined and "." in group_kind[0]:
                self.live.gone.add(group_kind)
            else:
                self.notes.append(f"{group_kind[1]} is not served now, so what is no longer desired of it stays")

    def _forget_what_goes_with_its_namespace(self) -> None:
        """Forget objects in namespaces that are being deleted, as they have to be created again."""
        ending = {key.name for key, live in self.live.objects.items() if key.kind == NAMESPACE and going(live)}
        self.sender.new_namespaces |= ending
        for key in [key for key in self.live.objects if key.namespace in ending]:
            del self.live.objects[key]

    def _decide(self, value: Object) -> Result | tuple[Object | None]:
        """The result of an object for which nothing is sent, or else what is there of it now."""
        key = Key.of(value)
        group_kind = (key.group, key.kind)
        error = self.live.error(key)
        # Secrets of a namespace that comes to be are opened when it is there.
        if error and key.namespace not in self.sender.new_namespaces:
            return result(value, "failed", str(error))
        if group_kind in self.live.not_served:
            return self._of_new_kind(value)
        live = self.live.objects.get(key)
        if live is None:
            return self._missing(value)
        if key in self.store.others and key.kind not in _SHARED and key not in self.store.shared:
            return result(value, "failed", self._of_another(key), before=live)
        entry = (self.store.own or {}).get(key)
        if is_as_desired(value, live, entry) and not going(live):
            return self._unchanged(value, live)
        return (live,)

    def _of_another(self, key: Key) -> str:
        owner = self.store.others[key]
        if key.name == WORKLOAD_GATEWAY and owner.startswith(f"fleet {self.options.fleet} ("):
            return f"it belongs to {owner}, which gives it up to a gateway in mode Model: run serving_stack first"
        return f"it belongs to {owner}: two fleets have an object of this name"

    def _unchanged(self, value: Object, live: Object, message: str = "") -> Result:
        found = readiness(live)
        return result(value, "unchanged", message or found.message, before=live, after=live, ready=found.ready)

    def _of_new_kind(self, value: Object) -> Result | tuple[None]:
        key = Key.of(value)
        if self.options.check_mode and key.group in self.options.pending_api_groups:
            self.sender.new_kinds.add((key.group, key.kind))
        if (key.group, key.kind) in self.sender.new_kinds:
            return self._in_namespace(value) or (None,)
        first = "the gateway of the fleet" if self.options.scope == CONTROL_SCOPE else "the serving stack"
        kind = f"{key.kind} ({text(value, 'apiVersion')})"
        return result(
            value,
            "failed",
            f"cluster {self.client.name} does not serve {kind}: install {first} first",
        )

    def _missing(self, value: Object) -> Result | tuple[Object | None]:
        """Decide on an object that no list by our label has: it is not there, or it is not ours."""
        key = Key.of(value)
        if key.namespace in self.sender.new_namespaces:
            return (None,)
        refused = self._in_namespace(value)
        if refused or key.namespace in self.sender.new_namespaces:
            return refused or (None,)
        if (key.group, key.kind) == SECRET and self.secrets.would_be_open(key.namespace):
            return result(value, "created", after=value)
        try:
            there = self.client.get(text(value, "apiVersion"), key.kind, key.name, key.namespace)
        except Forbidden as error:
            return result(value, "failed", str(error))
        if there is None:
            if key.kind == NAMESPACE:
                self.sender.new_namespaces.add(key.name)
            if key.kind == DEFINITION:
                self.sender.new_kinds.add((text(value, "spec", "group"), text(value, "spec", "names", "kind")))
            return (None,)
        labels = fields(there, "metadata", "labels")
        if labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY:
            return (there,)
        if key == SYSTEM_KEY:
            return self._of_system(value, there)
        if _is_same_certificate(value, there):
            # The control cluster is this one, or an administrator was faster.
            return self._unchanged(value, there, _AS_IT_IS)
        return result(value, "failed", _foreign(key, there), before=there)

    def _of_system(self, value: Object, there: Object) -> Result | tuple[Object]:
        """Decide on the namespace of the record where it is not ours: nothing but the label by which gateways take
        routes from it may be missing there."""
        key = Key.of(value)
        labels = {names.NAMESPACE_LABEL: fields(value, "metadata", "labels").get(names.NAMESPACE_LABEL)}
        if None in labels.values() or labels.items() <= fields(there, "metadata", "labels").items():
            return self._unchanged(value, there, _AS_IT_IS)
        self._desired[key] = {**value, "metadata": {"name": key.name, "labels": labels}}
        return (there,)

    def _in_namespace(self, value: Object) -> Result | None:
        """Result of an object that cannot be created in its namespace; None when it can."""
        namespace = Key.of(value).namespace
        if not namespace:
            return None
        if namespace not in self._namespaces:
            if any(key.namespace == namespace for key in self.live.objects):
                self._namespaces[namespace] = True
            else:
                self._namespaces[namespace] = self.client.get("v1", NAMESPACE, namespace) is not None
        if self._namespaces[namespace] or namespace in self.sender.new_namespaces:
            return None
        if self.options.create_namespaces:
            self.sender.new_namespaces.add(namespace)
            return None
        return result(
            value,
            "failed",
            f"there is no namespace {namespace} on cluster {self.client.name}: create it, and run again",
        )

    def _unwanted(self, desired: Mapping[Key, Object]) -> list[Object]:
        if not self.options.prune or self._is_blind():
            return []
        kept = {*desired, *self._held()}
        return unwanted(self.live, self.store, kept, definitions=self.options.definitions)

    def _held(self) -> set[Key]:
        """Return what stays as it is, with the namespaces that it is in, and that of the record."""
        found = {key for key, value in self.live.objects.items() if self._has_held_labels(value)} | self.options.held
        places = {Key("", NAMESPACE, "", key.namespace) for key in found}
        return found | places | {SYSTEM_KEY} if found else set()

    def _is_blind(self) -> bool:
        """Return True if it is unknown what earlier runs applied."""
        return self.store.own is None and not self.options.orphans

    def _has_held_labels(self, value: Object) -> bool:
        labels = fields(value, "metadata", "labels")
        return any(all(labels.get(name) == held for name, held in entry) for entry in self.options.held_labels)

    def _record_intent(self, sent: Iterable[Key], desired: Mapping[Key, Object]) -> None:
        """Write the names of objects into the record before they are created."""
        before = self.store.own or {}
        new = {key: Entry(text(desired[key], "apiVersion")) for key in sent if key not in before}
        if (new or self._has_other_notes()) and not self.options.check_mode:
            self._write_record({**before, **self._found(desired), **new})

    def _found(self, desired: Mapping[Key, Object]) -> dict[Key, Entry]:
        """With a lost record, return the entries of objects of ours that were found."""
        if self.store.own is not None or self._is_blind():
            return {}
        gone = unwanted(self.live, self.store, set(desired))
        return {Key.of(value): Entry(text(value, "apiVersion")) for value in gone}

    def _write_record(self, record: Mapping[Key, Entry]) -> None:
        try:
            self.store.write(record, self.options.notes)
        except (Conflict, AlreadyExists) as error:
            raise type(error)(
                f"another run of fleet {self.options.fleet} is at work here: {error.message}",
                cluster=error.cluster,
                action=error.action,
                code=error.code,
                reason=error.reason,
                hint="Run again when it has ended",
            ) from error

    def _send(self, pending: Sequence[tuple[Object, Object | None]], known: Mapping[Key, Result]) -> list[Result]:
        broken = {key.name for key, found in known.items() if key.kind == NAMESPACE and found.action == "failed"}
        unapplied = [(self._desired[key], found.before) for key, found in known.items() if found.action == "failed"]
        made, results, definitions = set[str](), list[Result](), list[Object]()
        done, check_mode = dict(known), self.options.check_mode
        detours = Detours(self.routes, self._desired.values(), () if check_mode else pending)
        for value, before in pending:
            key = Key.of(value)
            if definitions and key.kind != DEFINITION:
                self._established(definitions)
                definitions = []
            if key.namespace in broken:
                results.append(result(value, "failed", f"its Namespace {key.namespace} could not be applied"))
                continue
            if key.namespace in self.sender.new_namespaces - made:
                made.add(key.namespace)
                self._make_namespace(key.namespace, pending)
            if refusal := self.guards.refusal(value, before, unapplied) or detours.refusal(value, done):
                results.append(result(value, "failed", refusal, before=before))
                done[key] = results[-1]
                continue
            if self.secrets.narrow and (key.group, key.kind) == SECRET and not check_mode:
                self.secrets.open(key.namespace)
            found = self._sent(value, before)
            if found.action == "failed":
                unapplied.append((value, before))
            if found.after is not None and not check_mode:
                state = readiness(found.after)
                found = replace(found, ready=state.ready, message=found.message or state.message)
            # One of another owner is there all the same.
            if key.kind == NAMESPACE and found.action == "failed" and (key != SYSTEM_KEY or before is None):
                broken.add(key.name)
            if key.kind == DEFINITION and found.action in CHANGES:
                definitions.append(value)
            if key.kind in ROUTES and found.action in CHANGES:
                self.routes.changed.add(key)
            done[key] = found
            results.append(found)
        self._established(definitions)
        return results

    def _sent(self, value: Object, before: Object | None) -> Result:
        both = None if self.options.check_mode else with_limits_of(value, before) or with_rules_of(value, before)
        if both:
            self._both.add(Key.of(value))
        return self.sender.send(both or value, before)

    def _drop(self, known: Mapping[Key, Result]) -> Iterator[Result]:
        """Apply what drops limits or detours without these, where gateways follow the routes of its namespace: until
        then requests are counted here, or take these detours, although a route has changed."""
        values = [self._desired[key] for key in sorted(self._both) if known[key].action != "failed"]
        stuck = dict.fromkeys(self._failed(known), APPLIED)
        routes = [
            route
            for key, route in self._desired.items()
            if key.kind in ROUTES and key.namespace not in stuck
            if any(guards(value, route) or took(known[key].before, known[Key.of(value)].before) for value in values)
        ]
        stuck |= dict.fromkeys(self.routes.wait_applied(routes), FOLLOWED)
        for value in values:
            key = Key.of(value)
            first = known[key]
            if key.namespace in stuck:
                action = first.action if first.action in CHANGES else "skipped"
                kept = "its rules of before stay" if key.kind in ROUTES else "its limits of before count"
                yield replace(first, action=action, message=f"{kept} until {stuck[key.namespace]}")
            else:
                self._both.remove(key)
                yield replace(self.sender.send(value, first.after), before=first.before)

    def _failed(self, known: Mapping[Key, Result]) -> set[str]:
        """Return the namespaces in which a route or a policy could not be applied."""
        failed = [key for key, found in known.items() if found.action == "failed"]
        return {key.namespace for key in failed if key.kind in ROUTES or is_policy(self._desired[key])}

    def _make_namespace(self, name: str, pending: Sequence[tuple[Object, Object | None]]) -> None:
        """A namespace of users, which is theirs from then on; one that is composed is applied like anything else."""
        composed = any(Key.of(value) == Key("", NAMESPACE, "", name) for value, __ in pending)
        # One that is being deleted is there still.
        if composed or self._namespaces.get(name) is not False:
            return
        value = {"apiVersion": "v1", "kind": NAMESPACE, "metadata": {"name": name}}
        try:
            after = value if self.options.check_mode else self.client.create(value)
        except AlreadyExists:
            return
        self._made.append(result(value, "created", after=after))

    def _established(self, definitions: Sequence[Object]) -> None:
        if self.options.check_mode or not definitions:
            return
        wait_ready(self.client, definitions, _DEFINITION_SECONDS, explain=False)
        self.client.forget_discovery()

    def _prune(self, gone: Sequence[Object], known: Mapping[Key, Result], behind: Iterable[str]) -> list[Result]:
        routes = [value for key, value in self.live.objects.items() if key.kind in ROUTES and key not in known]
        stuck, failed = dict.fromkeys(behind, FOLLOWED), self._failed(known)
        check_mode = self.options.check_mode
        return Pruning(self.client, self.store, known, routes, stuck, failed, self.routes, check_mode).run(gone)

    def _behind_before(self) -> set[str]:
        """Return the namespaces in which the AI gateway has not worked on the last change of a route that changes now,
        with something to be deleted there."""
        if self.options.check_mode:
            return set()
        gone = {Key.of(value).namespace for value in self._gone}
        routes = [before for __, before in self._pending if before and text(before, "kind") == AI_ROUTE]
        routes = [value for value in routes if Key.of(value).namespace in gone]
        return self.routes.wait_rewritten(routes)

    def _left_to_others(self, desired: Mapping[Key, Object]) -> list[Object]:
        """Return the namespaces that this fleet no longer has, and that stay as another record has them."""
        recorded = set(self.store.own or {}) & set(self.store.others) & set(self.live.objects) - set(desired)
        if not self.options.prune or self.options.check_mode or self.options.held:
            return []
        return [self.live.objects[key] for key in recorded - self._held() if key.kind == NAMESPACE]

    def _prune_shared(self, values: Sequence[Object]) -> list[Result]:
        """Prune namespaces that no other record has any more.

        Of two runs that let go of a namespace at a time, each left it to the other. Both say so in their records first
        and read again after that, so that the later one deletes it."""
        if not values:
            return []
        self.store.read()
        alone = [value for value in values if Key.of(value) not in self.store.others]
        alone.sort(key=lambda value: (Key.of(value) == SYSTEM_KEY, Key.of(value)))
        return prune(self.client, alone, self.store, check_mode=False)

    def _record_outcome(
        self, desired: Mapping[Key, Object], known: Mapping[Key, Result], removed: Sequence[Result]
    ) -> None:
        if self.options.check_mode:
            return
        before = self.store.own or {}
        gone = {found.key for found in removed if found.action in GONE}
        record = {key: entry for key, entry in before.items() if self._stays(key, desired, gone)}
        for key, found in known.items():
            is_applied = found.action != "failed" and key not in self._both
            if is_applied and found.after is not None and _is_ours(found.after):
                digests = (desired_digest(desired[key]), _owned_digest(found.after))
                record[key] = Entry(text(desired[key], "apiVersion"), *digests)
        for found in removed:
            if found.key not in gone:
                record.setdefault(found.key, Entry(found.api_version))
        if record or self.store.keys():
            try:
                self._write_record(record)
            except ApiError as error:
                # What was made is known from before; the next run compares each object again.
                self.notes.append(f"the record could not be updated: {error}")

    def _stays(self, key: Key, desired: Mapping[Key, Object], gone: set[Key]) -> bool:
        """Return True if the record keeps an entry: it is desired, or still to be pruned and in no other record."""
        # What both want stays in both, unless this run is about all of its record.
        partial = key in self.store.shared and not self.options.prune
        if key in desired or (key in self.store.others and not partial):
            return key in desired
        group_kind = (key.group, key.kind)
        unseen = (group_kind in self.live.not_served or self.live.error(key) is not None) and (
            group_kind not in self.live.gone
        )
        there = key in self.live.objects
        return (there and key not in gone) or unseen or key in self.options.held

    def awaited(self, results: list[Result]) -> list[Result]:
        """Return the results once what was written is ready, or the time for that is over."""
        if self.options.wait <= 0 or self.options.check_mode:
            return results
        if not any(found.action not in ("deleted", "skipped") for found in results):
            return self._until_gone(results)
        pending = [
            found.after
            for found in results
            if found.after is not None
            and found.ready is False
            and waited_for(found.kind)
            and (self.options.wait_unchanged or found.action in CHANGES)
        ]
        states = wait_ready(self.client, pending, self.options.wait, progress=self.options.progress)
        self.notes += [
            f"{key} is not ready{f': {state.message}' if state.message else ''}"
            for key, state in states.items()
            if state.ready is False
        ]
        return [
            replace(found, ready=states[found.key].ready, message=states[found.key].message)
            if found.key in states
            else found
            for found in results
        ]

    def _until_gone(self, results: list[Result]) -> list[Result]:
        """Wait for what was deleted and is there for a while yet: a namespace takes as long as what is in it."""
        deleted = {found.key: found.api_version for found in results if found.action == "deleted"}
        left = wait_gone(self.client, deleted, self.options.wait, self.options.progress)
        return [
            replace(found, ready=False, message="it is deleted, and still there") if found.key in left else found
            for found in results
        ]


def _is_ours(live: Mapping[str, Any]) -> bool:
    return fields(live, "metadata", "labels").get(names.MANAGED_BY_LABEL) == names.MANAGED_BY


def _is_same_certificate(value: Object, there: Object) -> bool:
    """Return whether a Secret for TLS has the certificate and the key that are desired; more may be in it."""
    is_secret = Key.of(value)[:2] == SECRET and text(value, "type") == text(there, "type") == TLS_SECRET
    return is_secret and fields(value, "data").items() <= fields(there, "data").items()


def _foreign(key: Key, there: Object) -> str:
    by = listed(writers(there), 4)
    return (
        f"{key} is there already and is not ours (it has no label {names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
        f"{f'; managed by {by}' if by else ''}), so it is left alone: remove or rename it, or give it the label to "
        "hand it over"
    )
