# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What is on a cluster already and stands in the way of the serving stack.

What the role serving_stack refuses to install is an error, decided by the very function that the role asks
(`compose.stack.actions`). What it would install beside somebody else's is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import Finding, some, warning
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.images import runs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.nodes import plugin_devices
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import (
    DEFINITION,
    NVIDIA,
    Snapshot,
    Wanted,
    named,
    pool_of,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import GATEWAY_GROUP
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import actions
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, entries, fields, text

GATEWAY_DEFINITIONS = (f"gateways.{GATEWAY_GROUP}", f"httproutes.{GATEWAY_GROUP}")
"""The CRDs of the Gateway API that replicas need."""
_CHECK = "components"
_GATEWAY_KEY = "envoy-gateway"
_GATEWAY_GROUPS = (GATEWAY_GROUP, "gateway.networking.x-k8s.io")
_BUNDLE = "gateway.networking.k8s.io/bundle-version"
_CHANNEL = "gateway.networking.k8s.io/channel"
_LEAST_BUNDLE = (1, 5)
"""Of the Gateway API, that Envoy Gateway v1.8 is made for: its chart brings v1.5.1."""
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


def findings(sight: Snapshot, wanted: Wanted) -> Iterator[Finding]:
    """What is wrong with the variables of the stack, and what others installed."""
    for problem in wanted.problems:
        yield Finding("variables", "serving_stack", problem, "Correct the variable; nothing is installed until then")
    known = not {"Secret", DEFINITION} & sight.unread.keys()
    decided = actions(wanted.planned, sight.seen, wanted.stuck_after, wanted.adopt) if known else []
    for entry in decided:
        key = str(entry["key"])
        if entry["action"] == "refuse":
            yield _refused(key, str(entry["told"]))
        elif entry["action"] == "install":
            yield from _beside(entry, sight)
        elif entry["state"] == "provided":
            yield from _provided(entry, sight)
        elif not entry["why"]:
            yield from _not_ours(entry, sight)
        if entry["key"] == _GATEWAY_KEY and not entry["why"] and entry["action"] != "refuse":
            yield from _gateway_api(entry, sight, wanted)
    yield from _admission(sight, wanted)
    yield from _device_plugins(sight, wanted)


def _refused(key: str, told: str) -> Finding:
    message, _stop, hint = told.partition(". ")
    return Finding(_CHECK, key, message, hint or "Wait for it, or look what became of that run")


def _of_groups(entry: Mapping[str, Any], names: Iterable[str], *, without: Iterable[str] = ()) -> list[str]:
    """The CRDs, of these names, that are of the API groups of a component."""
    groups = set(entry.get("definition_groups") or ()) - set(without)
    single = set(entry.get("definitions") or ())
    return sorted(name for name in names if name.partition(".")[2] in groups or name in single)


def _beside(entry: Mapping[str, Any], sight: Snapshot) -> Iterator[Finding]:
    """Somebody else's component of the same kind, in a form that Helm would not notice."""
    key = str(entry["key"])
    controllers = sorted(named(value) for value in sight.workloads if runs(value, IMAGES.get(key, ())))
    definitions = _of_groups(entry, sight.definitions, without=_GATEWAY_GROUPS)
    if controllers:
        yield warning(
            _CHECK,
            key,
            f"somebody else runs it already: {some(controllers)}",
            f"Two of them get in each other's way. Set serving_stack_states.{key} to provided to use it, or remove it",
        )
    elif definitions:
        yield warning(
            _CHECK,
            key,
            f"its CustomResourceDefinitions are there ({some(definitions)}), and nothing that runs with them was seen",
            f"If they were left behind, nothing has to be done; else set serving_stack_states.{key} to provided",
        )


def _provided(entry: Mapping[str, Any], sight: Snapshot) -> Iterator[Finding]:
    """A component that somebody else is said to install."""
    needed = [text(value, "metadata", "name") for value in _definitions(entry)]
    missing = [name for name in needed if name not in sight.definitions]
    names_some = bool(entry.get("definition_groups") or entry.get("definitions"))
    if missing or (names_some and not _of_groups(entry, sight.definitions)):
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


def _not_ours(entry: Mapping[str, Any], sight: Snapshot) -> Iterator[Finding]:
    """CRDs that are applied as they are, and are there already: nothing of others is taken over."""
    names = [text(value, "metadata", "name") for value in _definitions(entry)]
    foreign = [
        name
        for name in names
        if name in sight.objects and text(sight.objects[name], "metadata", "labels", MANAGED_BY_LABEL) != MANAGED_BY
    ]
    if foreign:
        yield Finding(
            _CHECK,
            str(entry["key"]),
            f"CustomResourceDefinition {some(foreign)} is there and of somebody else",
            f"Set serving_stack_states.{entry['key']} to provided to use what is there, or remove it",
        )


def _gateway_api(entry: Mapping[str, Any], sight: Snapshot, wanted: Wanted) -> Iterator[Finding]:
    variable = "serving_stack_gateway_api_crds"
    there = [name for name in GATEWAY_DEFINITIONS if name in sight.definitions]
    if wanted.gateway_api_crds == "external":
        missing = [name for name in GATEWAY_DEFINITIONS if name not in sight.definitions]
        if missing:
            yield Finding(
                _CHECK,
                variable,
                f"it is external, and CustomResourceDefinition {some(missing)} is not there",
                f"Install the Gateway API v1.5 or newer, or set {variable} to chart",
            )
        yield from _old_bundle(there, sight)
        return
    installed = any(
        (release["name"], release["namespace"]) == (entry["release"], entry["namespace"]) for release in sight.releases
    )
    if not there or installed:
        return
    owner = "GKE manages them" if _is_gke(sight) else "they were not brought by this stack"
    bundle = text(sight.objects.get(there[0], {}), "metadata", "annotations", _BUNDLE) or "of unknown version"
    channel = text(sight.objects.get(there[0], {}), "metadata", "annotations", _CHANNEL)
    guards = [text(each, "metadata", "name") for each in sight.policies if text(each, "metadata", "name") in _GUARDS]
    guarded = f", and {some(guards)} refuses to change them" if guards else ""
    yield warning(
        _CHECK,
        "Gateway API",
        f"its CustomResourceDefinitions are there ({' '.join(filter(None, (bundle, channel)))}): {owner}{guarded}",
        f"Set {variable} to external. Helm 4, and every upgrade, would write them otherwise",
    )
    yield from _old_bundle(there, sight)


def _old_bundle(there: list[str], sight: Snapshot) -> Iterator[Finding]:
    for name in there[:1]:
        bundle = text(sight.objects.get(name, {}), "metadata", "annotations", _BUNDLE)
        numbers = tuple(map(int, re.findall(r"\d+", bundle)[:2]))
        if bundle and numbers < _LEAST_BUNDLE:
            yield warning(
                _CHECK,
                "Gateway API",
                f"its CustomResourceDefinitions are of {bundle}, and Envoy Gateway is made for v1.5",
                "Have whoever manages them upgrade them before the stack is installed",
            )


def _is_gke(sight: Snapshot) -> bool:
    return any(text(value, "spec", "controllerName").startswith(_GKE_CONTROLLER) for value in sight.gateway_classes)


def _admission(sight: Snapshot, wanted: Wanted) -> Iterator[Finding]:
    """Namespaces that were there before, and do not let in pods that work on the nodes."""
    labels = {text(value, "metadata", "name"): fields(value, "metadata", "labels") for value in sight.namespaces}
    seen = set()
    for entry in wanted.managed:
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


def _device_plugins(sight: Snapshot, wanted: Wanted) -> Iterator[Finding]:
    if not any(entry["key"] == "dra-driver" for entry in wanted.managed):
        return
    pools = {promise.pool for promise in wanted.expected.promises if NVIDIA in promise.drivers}
    nodes = [text(node, "metadata", "name") for node in sight.nodes if pool_of(node) in pools and plugin_devices(node)]
    plugins = [
        value
        for value in sight.workloads
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
        + (" (on GKE with the label gke-no-default-nvidia-gpu-device-plugin=true)" if _gke_nodes(sight) else ""),
    )


def _gke_nodes(sight: Snapshot) -> bool:
    return any("cloud.google.com/gke-nodepool" in fields(node, "metadata", "labels") for node in sight.nodes)
