# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Read from an API server whether the conditions of a change plan hold, and wait for those that take time."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.deletion import is_being_deleted
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change import routes
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.conditions import (
    Empty,
    Established,
    Released,
    RouteCondition,
    Unused,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.steps import Wait
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.discovery import ResourceType
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    Forbidden,
    NotServed,
    Unreachable,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import RecordStore
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SecretAccess
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.waiting import wait_ready
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import CHANGES, GONE, Result

FOLLOW_SECONDS = 20.0
"""A controller processes a change within a second or two; one that does not run at all is waited for in vain."""
SETTLE_SECONDS = 2.0
"""Time that proxies may take for a change after its controller has reported it; busy ones took a tenth of a second."""
_DEFINITION_SECONDS = 60.0
_POLL_SECONDS = 0.25
_ROUTE_VERSION = "gateway.networking.k8s.io/v1"

# Kinds of which users miss objects most. A namespace in which they cannot be listed is kept.
_CONTENT = frozenset(
    {
        ("v1", "Pod"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "Secret"),
        ("v1", "ConfigMap"),
        ("v1", "Service"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("batch/v1", "CronJob"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        ("gateway.networking.k8s.io/v1", "Gateway"),
        ("gateway.networking.k8s.io/v1", "HTTPRoute"),
        ("aigateway.envoyproxy.io/v1beta1", "AIGatewayRoute"),
        ("gateway.envoyproxy.io/v1alpha1", "Backend"),
    }
)
# Controllers and pods write these without naming an owner, and users do not.
_BY_CONTROLLERS = frozenset({"Endpoints", "Event", "Lease"})
# Kubernetes and OpenShift put these into every namespace.
_STANDARD = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "openshift-service-ca.crt"),
        ("ServiceAccount", "builder"),
        ("ServiceAccount", "default"),
        ("ServiceAccount", "deployer"),
    }
)
_STANDARD_SECRETS = frozenset({"kubernetes.io/service-account-token", "kubernetes.io/dockercfg"})


@dataclass
class Conditions:
    """Conditions on the state of one server. `seconds`: how long gateways may take to follow routes.

    If HTTPRoutes cannot be read, gateways are not waited for, and proxies get their time all the same."""

    client: Client
    store: RecordStore
    secrets: SecretAccess
    seconds: float = FOLLOW_SECONDS
    progress: Progress = unseen
    _settled: set[Key] = field(default_factory=set)

    def wait(self, waits: Sequence[Wait], results: Mapping[Key, Result]) -> Mapping[str, str]:
        """Wait for conditions of one kind together. Return those that do not hold, by the IDs of their steps, each with
        the reason. `results`: those of the steps so far."""
        if isinstance(waits[0].condition, RouteCondition):
            return self._wait_for_routes(waits, results)
        if isinstance(waits[0].condition, Released):
            self.store.read()
        removed = {*self.store.keys(), *(key for key, result in results.items() if result.action in GONE)}
        reasons = {wait.id: self._reason(wait, removed, results) for wait in waits}
        return {wait_id: reason for wait_id, reason in reasons.items() if reason}

    def _reason(self, wait: Wait, removed: Collection[Key], results: Mapping[Key, Result]) -> str:
        """Return why a condition does not hold, "" if it does."""
        match wait.condition:
            case Established(definitions):
                self._wait_established([results[key] for key in definitions if key in results])
            case Empty(namespace):
                return self._foreign_content(namespace, removed)
            case Unused(definitions):
                return self._objects_of(definitions, removed)
            case Released(key):
                return self.store.others.get(key, "")
        return ""

    def _wait_established(self, results: Iterable[Result]) -> None:
        changed = [result.after for result in results if result.action in CHANGES and result.after is not None]
        if changed:
            wait_ready(self.client, changed, _DEFINITION_SECONDS, explain=False)
            self.client.forget_discovery()

    def _foreign_content(self, namespace: str, removed: Collection[Key]) -> str:
        """Return why a namespace holds more than this run deletes, "" if it does not.

        Kinds that the run may not list do not count, but for those of `_CONTENT`."""
        found = []
        try:
            for each in self._types:
                found += self._foreign(each, namespace, removed)
        except Unreachable:
            raise
        except ApiError as error:
            return f"not all that it holds can be listed ({error.message})"
        return f"it holds objects of other owners: {listed(found)}" if found else ""

    @cached_property
    def _types(self) -> Sequence[ResourceType]:
        return [each for each in self.client.content_types() if each.kind not in _BY_CONTROLLERS]

    def _foreign(self, of: ResourceType, namespace: str, removed: Collection[Key]) -> list[str]:
        """Return the objects of a type that other owners have in a namespace."""
        try:
            if (of.api_version, of.kind) == ("v1", "Secret"):
                items = self.secrets.listed(namespace)
            else:
                items = self.client.list(of.api_version, of.kind, namespace=namespace).items
        except NotServed:
            return []
        except Forbidden:
            if (of.api_version, of.kind) in _CONTENT:
                raise
            return []
        return [str(Key.of(value)) for value in items if _is_foreign(value, removed)]

    def _objects_of(self, definitions: Iterable[Object], removed: Collection[Key]) -> str:
        """Return objects of the kinds that are defined, but for those that this run deletes, "" if there are none."""
        found = []
        for definition in definitions:
            version = next(entry["name"] for entry in entries(definition, "spec", "versions") if entry.get("storage"))
            api_version, kind = (
                f"{text(definition, 'spec', 'group')}/{version}",
                text(definition, "spec", "names", "kind"),
            )
            try:
                items = self.client.list(api_version, kind).items
            except NotServed:
                continue
            found += [
                str(Key.of(value)) for value in items if not is_being_deleted(value) and Key.of(value) not in removed
            ]
        return f"there is still {listed(found)}" if found else ""

    # Routes

    def _wait_for_routes(self, waits: Sequence[Wait], results: Mapping[Key, Result]) -> Mapping[str, str]:
        """Wait until gateways follow routes. Return the conditions that the time was too short for."""
        conditions = {wait.id: wait.condition for wait in waits if isinstance(wait.condition, RouteCondition)}
        left: Mapping[str, RouteCondition] = self._unmet(conditions)
        if left:
            left = self._poll(left)
        if any(condition.settles for condition in conditions.values()):
            behind = {condition.namespace for condition in left.values()}
            self._settle({condition.namespace for condition in conditions.values()} - behind, results)
        return {wait_id: condition.subject for wait_id, condition in self._unmet(left, enough=True).items()}

    def _poll(self, left: Mapping[str, RouteCondition]) -> Mapping[str, RouteCondition]:
        deadline = time.monotonic() + self.seconds
        namespaces = {condition.namespace for condition in left.values()}
        awaited = f"gateways to follow the routes of {count(len(namespaces), 'namespace')}"
        with self.progress(self.client.name, awaited, "seconds") as seen:
            while left and time.monotonic() < deadline:
                seen(listed({condition.namespace for condition in left.values()}))
                time.sleep(_POLL_SECONDS)
                left = self._unmet(left)
        return left

    def _unmet(self, conditions: Mapping[str, RouteCondition], *, enough: bool = False) -> dict[str, RouteCondition]:
        """Return the conditions that do not hold. `enough`: that the steps after them cannot do without."""
        known: dict[str, Sequence[Object]] = {}
        for namespace in sorted({condition.namespace for condition in conditions.values()}):
            try:
                known[namespace] = self.client.list(_ROUTE_VERSION, routes.HTTP_ROUTE, namespace=namespace).items
            except (Forbidden, NotServed):
                continue
        return {
            wait_id: condition
            for wait_id, condition in conditions.items()
            if condition.namespace in known
            if not (condition.is_enough if enough else condition.is_met)(known[condition.namespace])
        }

    def _settle(self, namespaces: Collection[str], results: Mapping[Key, Result]) -> None:
        """Give proxies time if routes have changed and gateways have followed."""
        changed = (key for key, result in results.items() if key.kind in routes.KINDS and result.action in CHANGES)
        fresh = {key for key in changed if key.namespace in namespaces} - self._settled
        if fresh:
            time.sleep(min(SETTLE_SECONDS, self.seconds))
            self._settled |= fresh


def _is_foreign(value: Object, removed: Collection[Key]) -> bool:
    """Return whether an object of a namespace is one that a user would miss. Objects with an owner go with it."""
    key = Key.of(value)
    standard = (key.kind, key.name) in _STANDARD or (
        (key.kind == "Secret" and text(value, "type") in _STANDARD_SECRETS)
        # OpenShift makes these for each namespace, and the fleet the other ones to read Secrets (`secret_access.py`).
        or (key.kind == "RoleBinding" and key.name.startswith(("system:", "modelplane-secrets-")))
    )
    owned = bool(entries(value, "metadata", "ownerReferences"))
    return not (standard or owned or is_being_deleted(value) or key in removed)
