# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Components that are on a cluster already and stand in the way of the serving stack.

What the role serving_stack refuses to install is an error, decided by the very function that the role asks
(`compose.stack.actions`). What it would install beside another owner's is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import Finding, warning
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.images import runs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.nodes import plugin_devices
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import (
    DEFINITION,
    NVIDIA,
    Desired,
    Snapshot,
    named,
    pool_of,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import GATEWAY_GROUP
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import actions
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import some
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, text

GATEWAY_DEFINITIONS = (f"gateways.{GATEWAY_GROUP}", f"httproutes.{GATEWAY_GROUP}")
"""The CRDs of the Gateway API that replicas need."""
_CHECK = "components"
_GATEWAY_KEY = "envoy-gateway"
_GATEWAY_GROUPS = (GATEWAY_GROUP, "gateway.networking.x-k8s.io")
_BUNDLE = "gateway.networking.k8s.io/bundle-version"
_CHANNEL = "gateway.networking.k8s.io/channel"
_LEAST_BUNDLE = (1, 5)
"""Of the Gateway API, that Envoy Gateway v1.8 is made for: its chart installs v1.5.1."""
_GUARDS = ("safe-upgrades.gateway.networking.k8s.io", "openshift-ingress-operator-gatewayapi-crd-admission")
"""ValidatingAdmissionPolicies that refuse writes of the Gateway API's CRDs: of its own releases since v1.5, and of
OpenShift's Ingress Operator."""
_GKE_CONTROLLER = "networking.gke.io/"
IMAGES: Mapping[str, tuple[str, ...]] = {
    "cert-manager": ("cert-manager-controller", "jetstack-cert-manager-rhel9"),
    "prometheus": ("prometheus-operator",),
    "leader-worker-set": ("lws",),
    "envoy-gateway": ("envoyproxy/gateway",),
    "ai-gateway": ("ai-gateway-controller",),
    "node-feature-discovery": ("node-feature-discovery", "node-feature-discovery-rhel9"),
    "dra-driver": ("dra-driver-nvidia-gpu", "k8s-dra-driver-gpu"),
}
"""Images of the controller of each component."""
_PLUGINS = ("k8s-device-plugin", "nvidia-gpu-device-plugin", "nvidia-k8s-device-plugin")


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield what is wrong with the variables of the stack, and what others installed."""
    for problem in desired.problems:
        yield Finding("variables", "serving_stack", problem, "Correct the variable; nothing is installed until then")
    known = not {"Secret", DEFINITION} & snapshot.unread.keys()
    decided = actions(desired.planned, snapshot.seen, desired.stuck_after, desired.adopt) if known else []
    for entry in decided:
        key = str(entry["key"])
        if entry["action"] == "refuse":
            yield _refused(key, str(entry["told"]))
        elif entry["action"] == "install":
            yield from _beside(entry, snapshot)
        elif entry["state"] == "provided":
            yield from _provided(entry, snapshot)
        elif not entry["why"]:
            yield from _not_ours(entry, snapshot)
        if entry["key"] == _GATEWAY_KEY and not entry["why"] and entry["action"] != "refuse":
            yield from _gateway_api(entry, snapshot, desired)
    yield from _admission(snapshot, desired)
    yield from _device_plugins(snapshot, desired)


def _refused(key: str, told: str) -> Finding:
    message, _stop, hint = told.partition(". ")
    return Finding(_CHECK, key, message, hint or "Wait for it, or read what became of that run")


def _of_groups(entry: Mapping[str, Any], names: Iterable[str], *, without: Iterable[str] = ()) -> list[str]:
    """The CRDs, of these names, that are of the API groups of a component."""
    groups = set(entry.get("definition_groups") or ()) - set(without)
    single = set(entry.get("definitions") or ())
    return sorted(name for name in names if name.partition(".")[2] in groups or name in single)


def _beside(entry: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Finding]:
    """Another owner's component of the same kind, in a form that Helm would not notice."""
    key = str(entry["key"])
    controllers = sorted(named(value) for value in snapshot.workloads if runs(value, IMAGES.get(key, ())))
    definitions = _of_groups(entry, snapshot.definitions, without=_GATEWAY_GROUPS)
    if controllers:
        yield warning(
            _CHECK,
            key,
            f"another owner runs it already: {some(controllers)}",
            f"Two of them get in each other's way. Set serving_stack_states.{key} to provided to use it, or remove it",
        )
    elif definitions:
        yield warning(
            _CHECK,
            key,
            f"its CustomResourceDefinitions are there ({some(definitions)}), and nothing that runs with them was seen",
            f"If they were left behind, nothing has to be done; else set serving_stack_states.{key} to provided",
        )


def _provided(entry: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Finding]:
    """A component that another owner is said to install."""
    needed = [text(value, "metadata", "name") for value in _definitions(entry)]
    missing = [name for name in needed if name not in snapshot.definitions]
    names_some = bool(entry.get("definition_groups") or entry.get("definitions"))
    if missing or (names_some and not _of_groups(entry, snapshot.definitions)):
        what = "none of its CustomResourceDefinitions is there"
        if missing:
            what = f"CustomResourceDefinition {some(missing)} is not there"
        yield Finding(
            _CHECK,
            f"serving_stack_states.{entry['key']}",
            f"it is provided, and {what}",
            "Install it, or set it to managed",
        )


def _definitions(entry: Mapping[str, Any]) -> list[Object]:
    return [value for value in entries(entry, "objects") if text(value, "kind") == DEFINITION]


def single_definitions(planned: Iterable[Mapping[str, Any]]) -> list[str]:
    """The CRDs of which more than the name has to be read."""
    applied = [text(value, "metadata", "name") for entry in planned for value in _definitions(entry)]
    return sorted({*applied, *GATEWAY_DEFINITIONS})


def _not_ours(entry: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Finding]:
    """CRDs that are applied as they are, and are there already: nothing of others is taken over."""
    names = [text(value, "metadata", "name") for value in _definitions(entry)]
    foreign = [
        name
        for name in names
        if name in snapshot.objects
        and text(snapshot.objects[name], "metadata", "labels", MANAGED_BY_LABEL) != MANAGED_BY
    ]
    if foreign:
        yield Finding(
            _CHECK,
            str(entry["key"]),
            f"CustomResourceDefinition {some(foreign)} is there and of another owner",
            f"Set serving_stack_states.{entry['key']} to provided to use what is there, or remove it",
        )


def _gateway_api(entry: Mapping[str, Any], snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    variable = "serving_stack_gateway_api_crds"
    there = [name for name in GATEWAY_DEFINITIONS if name in snapshot.definitions]
    if desired.gateway_api_crds == "external":
        missing = [name for name in GATEWAY_DEFINITIONS if name not in snapshot.definitions]
        if missing:
            yield Finding(
                _CHECK,
                variable,
                f"it is external, and CustomResourceDefinition {some(missing)} is not there",
                f"Install the Gateway API v1.5 or newer, or set {variable} to chart",
            )
        yield from _old_bundle(there, snapshot)
        return
    installed = any(
        (release["name"], release["namespace"]) == (entry["release"], entry["namespace"])
        for release in snapshot.releases
    )
    if not there or installed:
        return
    owner = "GKE manages them" if _is_gke(snapshot) else "they were not installed by this stack"
    bundle = text(snapshot.objects.get(there[0], {}), "metadata", "annotations", _BUNDLE) or "of unknown version"
    channel = text(snapshot.objects.get(there[0], {}), "metadata", "annotations", _CHANNEL)
    guards = [text(each, "metadata", "name") for each in snapshot.policies if text(each, "metadata", "name") in _GUARDS]
    guarded = f", and {some(guards)} refuses to change them" if guards else ""
    yield warning(
        _CHECK,
        "Gateway API",
        f"its CustomResourceDefinitions are there ({' '.join(filter(None, (bundle, channel)))}): {owner}{guarded}",
        f"Set {variable} to external. Helm 4, and every upgrade, would write them otherwise",
    )
    yield from _old_bundle(there, snapshot)


def _old_bundle(there: list[str], snapshot: Snapshot) -> Iterator[Finding]:
    for name in there[:1]:
        bundle = text(snapshot.objects.get(name, {}), "metadata", "annotations", _BUNDLE)
        numbers = tuple(map(int, re.findall(r"\d+", bundle)[:2]))
        if bundle and numbers < _LEAST_BUNDLE:
            yield warning(
                _CHECK,
                "Gateway API",
                f"its CustomResourceDefinitions are of {bundle}, and Envoy Gateway is made for v1.5",
                "Have whoever manages them upgrade them before the stack is installed",
            )


def _is_gke(snapshot: Snapshot) -> bool:
    return any(text(value, "spec", "controllerName").startswith(_GKE_CONTROLLER) for value in snapshot.gateway_classes)


def _admission(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Namespaces that were there before, and do not let in pods that work on the nodes."""
    labels = {text(value, "metadata", "name"): fields(value, "metadata", "labels") for value in snapshot.namespaces}
    seen = set()
    for entry in desired.managed:
        namespace = str(entry.get("namespace") or "")
        level = text(labels.get(namespace), "pod-security.kubernetes.io/enforce")
        ours = text(labels.get(namespace), MANAGED_BY_LABEL) == MANAGED_BY
        if entry.get("privileged") and not ours and level in ("baseline", "restricted") and namespace not in seen:
            seen.add(namespace)
            yield Finding(
                _CHECK,
                f"Namespace {namespace}",
                f"it was there before, and its Pod Security level {level} keeps the pods of {entry['key']} out",
                f"kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged --overwrite",
            )


def _device_plugins(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    if not any(entry["key"] == "dra-driver" for entry in desired.managed):
        return
    pools = {promise.pool for promise in desired.expected.promises if NVIDIA in promise.drivers}
    nodes = [
        text(node, "metadata", "name") for node in snapshot.nodes if pool_of(node) in pools and plugin_devices(node)
    ]
    plugins = [
        value
        for value in snapshot.workloads
        if text(value, "kind") == "DaemonSet"
        and runs(value, _PLUGINS)
        # One that no node asks for hands out nothing.
        and (nodes or fields(value, "status").get("desiredNumberScheduled") != 0)
    ]
    if not nodes and not plugins:
        return
    yield warning(
        "device-plugin",
        some(sorted(map(named, plugins))) or f"Node {some(sorted(nodes))}",
        f"it hands out the GPUs of {some(sorted(nodes))} as nvidia.com/gpu"
        if nodes
        else "it hands out GPUs as nvidia.com/gpu",
        "The DRA driver would hand out the same GPUs again. Keep the device plugin off these nodes"
        + (" (on GKE with the label gke-no-default-nvidia-gpu-device-plugin=true)" if _gke_nodes(snapshot) else ""),
    )


def _gke_nodes(snapshot: Snapshot) -> bool:
    return any("cloud.google.com/gke-nodepool" in fields(node, "metadata", "labels") for node in snapshot.nodes)
