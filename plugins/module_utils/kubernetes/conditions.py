# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of wait conditions on one API server."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..core.applying.inventory import Key
from ..core.change import routes
from ..core.change.conditions import Empty, Established, Known, Released, RouteCondition, Unused
from ..core.change.steps import Wait
from ..core.progress import Progress, unseen
from ..core.text import count, listed
from ..core.wire import Object, entries, fields, is_being_deleted, text
from .client import Client
from .discovery import ResourceType
from .errors import ApiError, Forbidden, NotServed, Unreachable
from .inventory import RecordStore
from .secret_access import SecretAccess
from .waiting import wait_ready
from .write import CHANGES, GONE, Result

FOLLOW_SECONDS = 20.0
"""Maximum wait for gateways. A running controller processes a change within two seconds."""
SETTLE_SECONDS = 2.0
"""Wait for proxies after their controller has reported a change. Busy proxies needed 0.1 seconds."""
READ_SECONDS = 12.0
"""Wait for the external processors of the AI gateway. They read their configuration every five seconds. Configuration
in a volume of their pods is one second older."""
_DEFINITION_SECONDS = 60.0
_POLL_SECONDS = 0.25
_ROUTE_VERSION = "gateway.networking.k8s.io/v1"

# A namespace is kept if one of these kinds cannot be listed.
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
# Controllers and pods create these without an owner reference.
_BY_CONTROLLERS = frozenset({"Endpoints", "Event", "Lease"})
# Kubernetes and OpenShift create these objects in each namespace.
_STANDARD = frozenset(
    {
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "openshift-service-ca.crt"),
        ("ServiceAccount", "builder"),
        ("ServiceAccount", "default"),
        ("ServiceAccount", "deployer"),
    }
)
_HELM_HOOK = "helm.sh/hook"
_STANDARD_SECRETS = frozenset({"kubernetes.io/service-account-token", "kubernetes.io/dockercfg"})


@dataclass
class Conditions:
    """Conditions on the state of one server. `seconds`: maximum wait for gateways.

    If HTTPRoutes cannot be read, the executor does not wait for gateways, but still waits for proxies."""

    client: Client
    store: RecordStore
    secrets: SecretAccess
    seconds: float = FOLLOW_SECONDS
    progress: Progress = unseen
    _settled: set[Key] = field(default_factory=set)

    def wait(self, waits: Sequence[Wait], results: Mapping[Key, Result]) -> Mapping[str, str]:
        """Wait for conditions of one kind simultaneously. Return the reasons of failed conditions by step ID.

        `results`: results of the previous steps."""
        if isinstance(waits[0].condition, RouteCondition):
            return self._wait_for_routes(waits, results)
        if isinstance(waits[0].condition, Released):
            self.store.read()
        removed = {*self.store.keys(), *(key for key, result in results.items() if result.action in GONE)}
        reasons = {wait.id: self._reason(wait, removed, results) for wait in waits}
        return {wait_id: reason for wait_id, reason in reasons.items() if reason}

    def _reason(self, wait: Wait, removed: Collection[Key], results: Mapping[Key, Result]) -> str:
        """Return the reason why a condition does not hold, "" if it holds."""
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
        """Return the objects in a namespace that this run does not delete, as text, or "" without such objects.

        Kinds that the run is not permitted to list are skipped, except the kinds in `_CONTENT`."""
        keys = []
        try:
            listable = self.client.listable(namespace, self._types)
            for resource_type in self._types:
                if resource_type in listable or _is_content(resource_type):
                    keys += self._foreign(resource_type, namespace, removed)
        except Unreachable:
            raise
        except ApiError as error:
            return f"its objects cannot be listed ({error.message})"
        return f"it contains objects that the fleet does not own: {listed(keys)}" if keys else ""

    @cached_property
    def _types(self) -> Sequence[ResourceType]:
        return [candidate for candidate in self.client.content_types() if candidate.kind not in _BY_CONTROLLERS]

    def _foreign(self, resource_type: ResourceType, namespace: str, removed: Collection[Key]) -> list[str]:
        """Return the objects of a type in a namespace that have another owner."""
        try:
            if (resource_type.api_version, resource_type.kind) == ("v1", "Secret"):
                items = self.secrets.listed(namespace)
            else:
                items = self.client.list(resource_type.api_version, resource_type.kind, namespace=namespace).items
        except NotServed:
            return []
        except Forbidden:
            if _is_content(resource_type):
                raise
            return []
        return [str(Key.of(value)) for value in items if _is_foreign(value, removed)]

    def _objects_of(self, definitions: Iterable[Object], removed: Collection[Key]) -> str:
        """Return the custom resources of the CRDs that this run does not delete, as text, or "" without any."""
        keys = []
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
            keys += [
                str(Key.of(value)) for value in items if not is_being_deleted(value) and Key.of(value) not in removed
            ]
        return f"there is still {listed(keys)}" if keys else ""

    # Routes

    def _wait_for_routes(self, waits: Sequence[Wait], results: Mapping[Key, Result]) -> Mapping[str, str]:
        """Wait until gateways have programmed routes. Return the conditions that failed within the time limit."""
        conditions = {wait.id: wait.condition for wait in waits if isinstance(wait.condition, RouteCondition)}
        unmet: Mapping[str, RouteCondition] = self._unmet(conditions)
        if unmet:
            unmet = self._poll(unmet)
        unmet_namespaces = {condition.namespace for condition in unmet.values()}
        namespaces = {condition.namespace for condition in conditions.values()} - unmet_namespaces
        if any(isinstance(condition, Known) for condition in conditions.values()):
            self._wait_for_processors(namespaces)
        elif any(condition.settles for condition in conditions.values()):
            self._settle(namespaces, results)
        return {wait_id: condition.subject for wait_id, condition in self._unmet(unmet, enough=True).items()}

    def _poll(self, unmet: Mapping[str, RouteCondition]) -> Mapping[str, RouteCondition]:
        deadline = time.monotonic() + self.seconds
        namespaces = {condition.namespace for condition in unmet.values()}
        subject = f"gateways to program the routes in {count(len(namespaces), 'namespace')}"
        with self.progress(self.client.name, subject, "seconds") as report:
            while unmet and time.monotonic() < deadline:
                report(listed({condition.namespace for condition in unmet.values()}))
                time.sleep(_POLL_SECONDS)
                unmet = self._unmet(unmet)
        return unmet

    def _unmet(self, conditions: Mapping[str, RouteCondition], *, enough: bool = False) -> dict[str, RouteCondition]:
        """Return the conditions that do not hold. `enough`: only conditions that stop the following steps."""
        http_routes: dict[str, Sequence[Object]] = {}
        for namespace in sorted({condition.namespace for condition in conditions.values()}):
            try:
                http_routes[namespace] = self.client.list(_ROUTE_VERSION, routes.HTTP_ROUTE, namespace=namespace).items
            except (Forbidden, NotServed):
                continue
        return {
            wait_id: condition
            for wait_id, condition in conditions.items()
            if condition.namespace in http_routes
            if not (condition.is_enough if enough else condition.is_met)(http_routes[condition.namespace])
        }

    def _wait_for_processors(self, namespaces: Collection[str]) -> None:
        """Wait until processors have read the routes of these namespaces. An earlier run might have written them just
        before it was aborted, so routes that this run has not changed are waited for too."""
        if namespaces:
            subject = f"processors to read the routes in {count(len(namespaces), 'namespace')}"
            with self.progress(self.client.name, subject, "seconds") as report:
                report(listed(namespaces))
                time.sleep(min(READ_SECONDS, self.seconds))

    def _settle(self, namespaces: Collection[str], results: Mapping[Key, Result]) -> None:
        """Wait for proxies if routes have changed and gateways have programmed them."""
        changed = (key for key, result in results.items() if key.kind in routes.KINDS and result.action in CHANGES)
        fresh = {key for key in changed if key.namespace in namespaces} - self._settled
        if fresh:
            time.sleep(min(SETTLE_SECONDS, self.seconds))
            self._settled |= fresh


def _is_content(resource_type: ResourceType) -> bool:
    return (resource_type.api_version, resource_type.kind) in _CONTENT


def _is_foreign(value: Object, removed: Collection[Key]) -> bool:
    """Return True if an object prevents the deletion of its namespace. Objects with an owner do not."""
    key = Key.of(value)
    is_standard = (key.kind, key.name) in _STANDARD or (
        (key.kind == "Secret" and text(value, "type") in _STANDARD_SECRETS)
        # OpenShift creates the `system:` RoleBindings in each namespace. `secret_access.py` creates the others.
        or (key.kind == "RoleBinding" and key.name.startswith(("system:", "modelplane-secrets-")))
    )
    # Helm does not delete hook objects with their release.
    is_hook = _HELM_HOOK in fields(value, "metadata", "annotations")
    has_owner = bool(entries(value, "metadata", "ownerReferences"))
    return not (is_standard or is_hook or has_owner or is_being_deleted(value) or key in removed)
