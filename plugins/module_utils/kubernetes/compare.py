# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Comparison of desired and live objects on one API server, as the input of the change plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core import names
from ..core.applying.inventory import Key
from ..core.applying.managed_fields import writers
from ..core.change.difference import Observed, Refusal, Scope, is_certificate, to_prune, yielding
from ..core.change.routes import AI_ROUTE
from ..core.change.rules import DEFINITION, NAMESPACE, SYSTEM_KEY
from ..core.compose.constants import TLS_SECRET, WORKLOAD_GATEWAY
from ..core.compose.model_gateway.parts import ENVOY_API
from ..core.status.route_policies import SECURITY, contested, foreign, foreign_message
from ..core.text import listed
from ..core.wire import Object, Objects, entries, fields, is_being_deleted, text
from .client import Client
from .errors import Forbidden, NotServed
from .inventory import CONTROL_SCOPE, RecordStore, is_ours
from .labelled_objects import ON_CONTROL, ON_WORKLOAD, SECRET, GroupKind, Live, kinds_of, list_labelled
from .write import Sender

USED_MESSAGE = "it already exists and is used without changes"
# Kinds that several fleets can share, because their objects are identical.
_SHARED = frozenset({NAMESPACE, DEFINITION})


@dataclass
class Comparison:
    """Comparison of desired and live objects on one server.

    pending_api_groups: API groups that another component will install.
    sender: receives the namespaces and kinds that the run creates.
    """

    client: Client
    store: RecordStore
    sender: Sender
    scope: Scope
    create_namespaces: bool = False
    pending_api_groups: frozenset[str] = frozenset()
    desired: dict[Key, Object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    live: Live = field(default_factory=Live)
    used: dict[Key, Object] = field(default_factory=dict)
    """Objects of other owners that the fleet uses without changes."""
    _refusals: dict[Key, Refusal] = field(default_factory=dict)
    _namespaces: dict[str, bool] = field(default_factory=dict)
    _created: list[str] = field(default_factory=list)

    def read(self, desired: Mapping[Key, Object]) -> Observed:
        """Read the server, complete the desired objects, and return the observed state."""
        self._read(desired)
        self.desired = {key: yielding(value, self.live.objects.get(key)) for key, value in desired.items()}
        live = dict(self.live.objects)
        for key, value in list(self.desired.items()):
            refusal = self._refusal(value, live)
            if refusal is not None:
                self._refusals[key] = refusal
        self._refuse_contested(live)
        return Observed(
            live=live,
            own=self.store.own,
            others=self.store.others,
            refusals=self._refusals,
            used=frozenset(self.used),
            namespaces=self._created,
        )

    def orphans(self) -> list[Object]:
        """Return our undesired objects if no inventory exists."""
        if self.store.own is not None or not self.scope.orphans:
            return []
        observed = Observed(live=self.live.objects, others=self.store.others)
        return to_prune(observed, set(self.desired), definitions=False)

    def _read(self, desired: Mapping[Key, Object]) -> None:
        self.store.read()
        kinds = kinds_of(desired.values())
        if self.store.own is None:
            # In the first run, or after the inventory was lost, objects of earlier runs have only their label.
            composed = ON_CONTROL if self._is_control else ON_WORKLOAD
            is_wide = self.scope.orphans and (desired or self.store.error or self.scope.prune)
            recorded = dict(composed) if is_wide else {}
        else:
            recorded = {(key.group, key.kind): entry.api_version for key, entry in self.store.own.items()}
        keys = [*desired, *(self.store.own or ())]
        # The Secret of a certificate is deleted together with the certificate.
        issued = [Key(*SECRET, key.namespace, "") for key in keys if is_certificate(key) and key not in desired]
        secrets = {SECRET: "v1"} if issued else {}
        self.live = list_labelled(self.client, {**secrets, **recorded, **kinds}, self.sender.secrets, [*keys, *issued])
        self._forget_terminating_namespaces()
        if self.store.own is None:
            # A concurrent run writes its inventory before its objects, so the inventory must be read again.
            error = self.store.error
            self.store.read()
            if error:
                self.notes.append(f"{error}; every object was applied again")
        namespaces = {
            key.namespace for key in self.store.own or () if (key.group, key.kind) == SECRET and key not in desired
        }
        closed = sorted(self.live.closed.items())
        self.notes += [
            f"Secrets in {namespace} that are no longer desired stay: {reason}"
            for namespace, reason in closed
            if namespace in namespaces
        ]
        for group_kind, reason in sorted(self.live.errors.items()):
            if group_kind not in kinds:
                self.notes.append(f"{group_kind[1]} objects that are no longer desired stay: {reason}")
        self._forget_removed_kinds(kinds)

    def _forget_removed_kinds(self, desired: Iterable[GroupKind]) -> None:
        """Mark kinds without a CustomResourceDefinition as removed, because their objects were deleted with it. Objects
        of a kind that is not served for another reason remain in the inventory."""
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
                self.notes.append(
                    f"undesired {group_kind[1]} objects stay because the API server does not serve the kind"
                )

    def _forget_terminating_namespaces(self) -> None:
        """Forget objects in terminating namespaces, because they must be created again."""
        terminating = {
            key.name for key, live in self.live.objects.items() if key.kind == NAMESPACE and is_being_deleted(live)
        }
        self.sender.new_namespaces |= terminating
        for key in [key for key in self.live.objects if key.namespace in terminating]:
            del self.live.objects[key]

    @property
    def _is_control(self) -> bool:
        return self.store.scope == CONTROL_SCOPE

    def _refusal(self, value: Object, live: dict[Key, Object]) -> Refusal | None:
        """Return the reason why an object cannot be written, None if it can. Add the live object to `live`."""
        key = Key.of(value)
        error = self.live.error(key)
        # Access to Secrets in a new namespace is granted after its creation.
        if error and key.namespace not in self.sender.new_namespaces:
            return Refusal(str(error))
        if (key.group, key.kind) in self.live.not_served:
            return self._unserved_refusal(value)
        if key not in live:
            return self._unlabelled_refusal(value, live)
        if key in self.store.others and key.kind not in _SHARED and key not in self.store.shared:
            return Refusal(self._owner_message(key), live[key])
        return None

    def _refuse_contested(self, live: Mapping[Key, Object]) -> None:
        """Refuse new routes of the AI gateway that a SecurityPolicy of another owner might open. Live routes remain."""
        routes = [value for key, value in self.desired.items() if key.kind == AI_ROUTE and key not in live]
        routes = [value for value in routes if Key.of(value) not in self._refusals]
        if not routes:
            return
        try:
            policies = contested(Objects(self.client.list(ENVOY_API, SECURITY).items))
        except (Forbidden, NotServed):
            return
        for route in routes:
            if messages := [foreign_message(policy) for policy in foreign(policies, route)]:
                self._refusals[Key.of(route)] = Refusal(f"it is not applied: {'; '.join(messages)}")

    def _owner_message(self, key: Key) -> str:
        owner = self.store.others[key]
        if key.name == WORKLOAD_GATEWAY and owner.startswith(f"fleet {self.store.fleet} ("):
            return f"it belongs to {owner}, which gives it up to a gateway in mode Model: run serving_stack first"
        return f"it belongs to {owner}: two fleets have an object of this name"

    def _unserved_refusal(self, value: Object) -> Refusal | None:
        key = Key.of(value)
        if self.sender.check_mode and key.group in self.pending_api_groups:
            self.sender.new_kinds.add((key.group, key.kind))
        if (key.group, key.kind) in self.sender.new_kinds:
            return self._namespace_refusal(value)
        component = "the fleet gateway" if self._is_control else "the serving stack"
        kind = f"{key.kind} ({text(value, 'apiVersion')})"
        return Refusal(f"cluster {self.client.name} does not serve {kind}: install {component} first")

    def _unlabelled_refusal(self, value: Object, live: dict[Key, Object]) -> Refusal | None:
        """Return the reason for an unwritable object without the fleet label: it is missing, or has another owner."""
        key = Key.of(value)
        if key.namespace in self.sender.new_namespaces:
            return None
        refusal = self._namespace_refusal(value)
        if refusal or key.namespace in self.sender.new_namespaces:
            return refusal
        if (key.group, key.kind) == SECRET and self.sender.secrets.would_be_open(key.namespace):
            return None
        try:
            current = self.client.get(text(value, "apiVersion"), key.kind, key.name, key.namespace)
        except Forbidden as error:
            return Refusal(str(error))
        if current is None:
            if key.kind == NAMESPACE:
                self.sender.new_namespaces.add(key.name)
            if key.kind == DEFINITION:
                self.sender.new_kinds.add((text(value, "spec", "group"), text(value, "spec", "names", "kind")))
            return None
        if is_ours(current) or self._is_of_our_route(current):
            live[key] = current
        elif key == SYSTEM_KEY:
            self._use_system_namespace(value, current, live)
        elif _is_same_certificate(value, current):
            # The control cluster is this cluster, or an administrator created the Secret.
            self.used[key] = current
        else:
            return Refusal(_foreign(key, current), current)
        return None

    def _is_of_our_route(self, current: Object) -> bool:
        """Return True if the AI gateway created an object for an AIGatewayRoute of the fleet, before the fleet did."""
        owners = entries(current, "metadata", "ownerReferences")
        namespace = Key.of(current).namespace
        routes = {(key.namespace, key.name) for key in self.live.objects if key.kind == AI_ROUTE}
        return any(text(owner, "kind") == AI_ROUTE and (namespace, text(owner, "name")) in routes for owner in owners)

    def _use_system_namespace(self, value: Object, current: Object, live: dict[Key, Object]) -> None:
        """Use an inventory namespace of another owner. Only the label that gateways require for routes is added."""
        key = Key.of(value)
        labels = {names.NAMESPACE_LABEL: fields(value, "metadata", "labels").get(names.NAMESPACE_LABEL)}
        if None in labels.values() or labels.items() <= fields(current, "metadata", "labels").items():
            self.used[key] = current
        else:
            self.desired[key] = {**value, "metadata": {"name": key.name, "labels": labels}}
            live[key] = current

    def _namespace_refusal(self, value: Object) -> Refusal | None:
        """Return the reason why an object cannot be created in its namespace, None if it can."""
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
        if self.create_namespaces:
            self.sender.new_namespaces.add(namespace)
            self._created.append(namespace)
            return None
        return Refusal(f"there is no namespace {namespace} on cluster {self.client.name}: create it, and run again")


def _is_same_certificate(value: Object, current: Object) -> bool:
    """Return True if a TLS Secret contains the desired certificate and key. It can contain additional keys."""
    is_secret = Key.of(value)[:2] == SECRET and text(value, "type") == text(current, "type") == TLS_SECRET
    return is_secret and fields(value, "data").items() <= fields(current, "data").items()


def _foreign(key: Key, current: Object) -> str:
    managers = listed(writers(current), 4)
    return (
        f"{key} already exists and does not belong to the fleet (no label {names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
        f"{f'; managed by {managers}' if managers else ''}), so it is not changed: remove or rename it, or add the "
        "label so that the fleet manages it"
    )
