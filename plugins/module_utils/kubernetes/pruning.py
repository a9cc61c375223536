# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Prune what a fleet applied and no longer desires, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import managed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.order import DEFINITION, NAMESPACE, ordered
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import FIELD_MANAGER, Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotServed,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import RECORD_LABEL, RecordStore
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.labelled_objects import SECRET, Live
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SecretAccess
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.write import (
    WHOLE_SERVER,
    Action,
    Result,
    going,
    result,
)

GONE: frozenset[Action] = frozenset({"deleted", "unchanged"})
"""Actions on what is not there any more."""
SYSTEM_KEY = Key("", NAMESPACE, "", SYSTEM_NAMESPACE)

# What a user would miss of a namespace. Objects that a controller made (they have an owner) come and go with it.
_CONTENT = (
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
)
_ISSUED_FOR = "cert-manager.io/certificate-name"
# Kubernetes and OpenShift put these into every namespace.
_STANDARD_CONFIG = frozenset({"kube-root-ca.crt", "openshift-service-ca.crt"})
_STANDARD_SECRETS = frozenset({"kubernetes.io/service-account-token", "kubernetes.io/dockercfg"})


def unwanted(live: Live, store: RecordStore, desired: Collection[Key], *, definitions: bool = False) -> list[Object]:
    """Return what is to be deleted, in order: objects with our label that are in our record, or, where the record is
    lost, that our manager applied and no other record has; with certificates, the Secrets that have them. Definitions
    of kinds only if that is asked for, as all objects of the kind go with them."""
    found = []
    for key, value in live.objects.items():
        if key in desired or key in store.others or going(value) or (key.kind == DEFINITION and not definitions):
            continue
        if RECORD_LABEL in fields(value, "metadata", "labels"):
            continue
        recorded = key in store.own if store.own is not None else managed(value, FIELD_MANAGER) is not None
        if recorded:
            found.append(value)
    found += _issued(live, found, desired)
    # The namespace of the record is the last one: as long as anything is left, the record has to be.
    last = [value for value in found if Key.of(value) == SYSTEM_KEY]
    return [*(value for value in reversed(ordered(found)) if Key.of(value) != SYSTEM_KEY), *last]


def is_certificate(key: Key) -> bool:
    """Return whether cert-manager issues a certificate for an object, into a Secret."""
    return (key.group, key.kind) == ("cert-manager.io", "Certificate")


def _issued(live: Live, gone: Collection[Object], kept: Collection[Key]) -> list[Object]:
    """Return the Secrets that were issued for certificates which are to be deleted: cert-manager leaves them behind."""
    found = []
    for value in gone:
        certificate = Key.of(value)
        secret = Key(*SECRET, certificate.namespace, text(value, "spec", "secretName"))
        issued = live.objects.get(secret) if is_certificate(certificate) and secret not in kept else None
        if issued is None or issued in gone or going(issued):
            continue
        if text(issued, "metadata", "annotations", _ISSUED_FOR) == certificate.name:
            found.append(issued)
    return found


def prune(
    client: Client, values: Iterable[Object], store: RecordStore, *, check_mode: bool, done: Sequence[Result] = ()
) -> list[Result]:
    """Delete objects in the order given. `done` are the results of what this run deleted before, or kept. Raises what
    concerns the whole server, not one object alone.

    A Namespace that holds what this run does not remove is kept, and so are the definitions of kinds while there is an
    object of any of them, and the namespace of the record while anything else is.
    """
    values = list(values)
    definitions = [value for value in values if Key.of(value).kind == DEFINITION]
    used: str | None = None
    secrets = SecretAccess(client, check_mode=check_mode)
    results: list[Result] = []
    removed: set[Key] = {*store.keys(), *(found.key for found in done if found.action in GONE)}
    for value in values:
        key = Key.of(value)
        if key == SYSTEM_KEY and len(removed) < len(store.keys()) + len(done) + len(results):
            results.append(result(value, "skipped", "kept until everything else is gone", before=value))
            continue
        try:
            kept = _foreign_content(client, secrets, key.name, removed) if key.kind == NAMESPACE else ""
            if key.kind == DEFINITION:
                used = kept = _in_use(client, definitions, removed) if used is None else used
            if kept:
                results.append(
                    result(value, "skipped", f"kept, although it is no longer desired: {kept}", before=value)
                )
                continue
            found = _delete(client, value, check_mode)
        except WHOLE_SERVER:
            raise
        except Conflict:
            message = "it was replaced by another object of that name meanwhile: left alone"
            found = result(value, "skipped", message, before=value)
        except ApiError as error:
            found = result(value, "failed", str(error), before=value)
        if found.action in GONE:
            removed.add(key)
        results.append(found)
    return results


def _delete(client: Client, value: Object, check_mode: bool) -> Result:
    key = Key.of(value)
    was_there = client.delete(
        text(value, "apiVersion"),
        key.kind,
        key.name,
        key.namespace,
        uid=text(value, "metadata", "uid"),
        propagation="Background",
        dry_run=check_mode,
    )
    # Gone already: another manager deleted it, which is a change of theirs.
    return result(value, "deleted" if was_there else "unchanged", before=value)


def _foreign_content(client: Client, secrets: SecretAccess, namespace: str, removed: Collection[Key]) -> str:
    """Return what is in a namespace that this run does not delete; empty when nothing is."""
    found = []
    for api_version, kind in _CONTENT:
        try:
            if kind == "Secret":
                items = secrets.listed(namespace)
            else:
                items = client.list(api_version, kind, namespace=namespace).items
        except NotServed:
            continue
        except Forbidden as error:
            return f"what is in it cannot be read ({error.message})"
        found += [str(Key.of(value)) for value in items if _is_foreign(value, removed)]
    return f"it holds what is not of this fleet: {listed(found)}" if found else ""


def _in_use(client: Client, definitions: Iterable[Object], removed: Collection[Key]) -> str:
    """Return objects of the kinds that are defined, but for those that this run deletes; empty when there are none."""
    found = []
    for definition in definitions:
        version = next(entry["name"] for entry in entries(definition, "spec", "versions") if entry.get("storage"))
        api_version, kind = f"{text(definition, 'spec', 'group')}/{version}", text(definition, "spec", "names", "kind")
        try:
            items = client.list(api_version, kind).items
        except NotServed:
            continue
        found += [str(Key.of(value)) for value in items if not going(value) and Key.of(value) not in removed]
    return f"there is still {listed(found)}" if found else ""


def _is_foreign(value: Object, removed: Collection[Key]) -> bool:
    key = Key.of(value)
    standard = (key.kind == "ConfigMap" and key.name in _STANDARD_CONFIG) or (
        key.kind == "Secret" and text(value, "type") in _STANDARD_SECRETS
    )
    owned = bool(entries(value, "metadata", "ownerReferences"))
    return not (standard or owned or going(value) or key in removed)
