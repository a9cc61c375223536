# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Components on a cluster that conflict with the serving stack.

A release that the role serving_stack would not install is an error. The role and this check call the same function
(`compose.stack.actions`). A release that the role would install next to the release of another owner is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..cloud.cloud import Cloud
from ..cloud.registry import CLOUDS
from ..compose.constants import GATEWAY_GROUP
from ..compose.stack import Choices, Component, StackError, actions, plan, with_kept_needs
from ..names import MANAGED_BY, MANAGED_BY_LABEL
from ..text import some
from ..wire import Object, entries, fields, text
from .finding import Finding, warning
from .images import runs
from .nodes import plugin_devices
from .snapshot import DEFINITION, NVIDIA, Desired, Snapshot, named, pool_of

GATEWAY_DEFINITIONS = (f"gateways.{GATEWAY_GROUP}", f"httproutes.{GATEWAY_GROUP}")
"""CRDs of the Gateway API that replicas need."""
_CHECK = "components"
_GATEWAY_KEY = "envoy-gateway"
_GATEWAY_GROUPS = (GATEWAY_GROUP, "gateway.networking.x-k8s.io")
_BUNDLE = "gateway.networking.k8s.io/bundle-version"
_CHANNEL = "gateway.networking.k8s.io/channel"
_LEAST_BUNDLE = (1, 5)
"""Oldest version of the Gateway API that Envoy Gateway v1.8 supports: its chart installs v1.5.1."""
_GUARDS = ("safe-upgrades.gateway.networking.k8s.io", "openshift-ingress-operator-gatewayapi-crd-admission")
"""ValidatingAdmissionPolicies that refuse changes of the Gateway API's CRDs: those of its releases since v1.5, and of
OpenShift's Ingress Operator."""
IMAGES: Mapping[str, tuple[str, ...]] = {
    "cert-manager": ("cert-manager-controller", "jetstack-cert-manager-rhel9"),
    "trust-manager": ("trust-manager",),
    "prometheus": ("prometheus-operator",),
    "leader-worker-set": ("lws",),
    "envoy-gateway": ("envoyproxy/gateway",),
    "ai-gateway": ("ai-gateway-controller",),
    "node-feature-discovery": ("node-feature-discovery", "node-feature-discovery-rhel9"),
    "dra-driver": ("dra-driver-nvidia-gpu", "k8s-dra-driver-gpu"),
}
"""Images of the controller of each component."""
_PLUGINS = ("k8s-device-plugin", "nvidia-gpu-device-plugin", "nvidia-k8s-device-plugin")


def planned_stack(
    components: Sequence[Component], choices: Choices, snapshot: Snapshot | None
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the components as the role plans them, and the problems that prevent the plan.

    Without a snapshot, the needs of earlier runs are unknown.
    """
    if snapshot is not None:
        choices = with_kept_needs(components, choices, snapshot.seen)
    try:
        return plan(components, choices), ()
    except StackError as error:
        return [], error.problems


def findings(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield findings about the variables of the stack and about components that others installed."""
    for problem in desired.problems:
        yield Finding("variables", "serving_stack", problem, "Fix the variable; nothing is installed until then")
    is_readable = not {"Secret", DEFINITION} & snapshot.unread.keys()
    decided = actions(desired.planned, snapshot.seen, desired.stuck_after, desired.adopt) if is_readable else []
    for entry in decided:
        key = str(entry["key"])
        if entry["action"] == "refuse":
            yield _refused(key, str(entry["message"]))
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


def _refused(key: str, text: str) -> Finding:
    message, _stop, hint = text.partition(". ")
    return Finding(_CHECK, key, message, hint or "Wait for it, or check the other run")


def _of_groups(entry: Mapping[str, Any], names: Iterable[str], *, without: Iterable[str] = ()) -> list[str]:
    """Return the CRDs, among these names, in the API groups of a component."""
    groups = set(entry.get("definition_groups") or ()) - set(without)
    single = set(entry.get("definitions") or ())
    return sorted(name for name in names if name.partition(".")[2] in groups or name in single)


def _beside(entry: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a component of another owner of the same kind that is not a Helm release."""
    key = str(entry["key"])
    controllers = sorted(named(value) for value in snapshot.workloads if runs(value, IMAGES.get(key, ())))
    definitions = _of_groups(entry, snapshot.definitions, without=_GATEWAY_GROUPS)
    if controllers:
        yield warning(
            _CHECK,
            key,
            f"another owner already runs it: {some(controllers)}",
            f"Two of them would conflict. Set serving_stack_states.{key} to provided to use it, or remove it",
        )
    elif definitions:
        yield warning(
            _CHECK,
            key,
            f"its CustomResourceDefinitions exist ({some(definitions)}), but no controller for them was observed",
            f"If they are orphans, nothing has to be done; else set serving_stack_states.{key} to provided",
        )


def _provided(entry: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a component that should be provided by another owner, but is not installed."""
    definition_names = [text(value, "metadata", "name") for value in _definitions(entry)]
    missing = [name for name in definition_names if name not in snapshot.definitions]
    names_some = bool(entry.get("definition_groups") or entry.get("definitions"))
    if missing or (names_some and not _of_groups(entry, snapshot.definitions)):
        problem = "none of its CustomResourceDefinitions exists"
        if missing:
            problem = f"CustomResourceDefinition {some(missing)} does not exist"
        yield Finding(
            _CHECK,
            f"serving_stack_states.{entry['key']}",
            f"it is set to provided, but {problem}",
            "Install it, or set it to managed",
        )


def _definitions(entry: Mapping[str, Any]) -> list[Object]:
    return [value for value in entries(entry, "objects") if text(value, "kind") == DEFINITION]


def single_definitions(planned: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the CRDs that have to be read in full, not only listed by name."""
    applied = [text(value, "metadata", "name") for entry in planned for value in _definitions(entry)]
    return sorted({*applied, *GATEWAY_DEFINITIONS})


def _not_ours(entry: Mapping[str, Any], snapshot: Snapshot) -> Iterator[Finding]:
    """Yield CRDs of other owners that the stack would apply. The stack never adopts objects of other owners."""
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
            f"CustomResourceDefinition {some(foreign)} already exists and has another owner",
            f"Set serving_stack_states.{entry['key']} to provided to use it, or remove it",
        )


def _gateway_api(entry: Mapping[str, Any], snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    variable = "serving_stack_gateway_api_crds"
    existing = [name for name in GATEWAY_DEFINITIONS if name in snapshot.definitions]
    if desired.gateway_api_crds == "external":
        missing = [name for name in GATEWAY_DEFINITIONS if name not in snapshot.definitions]
        if missing:
            yield Finding(
                _CHECK,
                variable,
                f"it is external, but CustomResourceDefinition {some(missing)} does not exist",
                f"Install the Gateway API v1.5 or newer, or set {variable} to chart",
            )
        yield from _old_bundle(existing, snapshot)
        return
    installed = any(
        (release["name"], release["namespace"]) == (entry["release"], entry["namespace"])
        for release in snapshot.releases
    )
    if not existing or installed:
        return
    manager = _gateway_manager(snapshot)
    owner = f"{manager} manages them" if manager else "they were not installed by this stack"
    bundle = text(snapshot.objects.get(existing[0], {}), "metadata", "annotations", _BUNDLE) or "of unknown version"
    channel = text(snapshot.objects.get(existing[0], {}), "metadata", "annotations", _CHANNEL)
    guards = [
        text(policy, "metadata", "name") for policy in snapshot.policies if text(policy, "metadata", "name") in _GUARDS
    ]
    guarded = f", and {some(guards)} refuses to change them" if guards else ""
    yield warning(
        _CHECK,
        "Gateway API",
        f"its CustomResourceDefinitions already exist ({' '.join(filter(None, (bundle, channel)))}): {owner}{guarded}",
        f"Set {variable} to external. Otherwise Helm 4, and every upgrade, would overwrite them",
    )
    yield from _old_bundle(existing, snapshot)


def _old_bundle(existing: list[str], snapshot: Snapshot) -> Iterator[Finding]:
    for name in existing[:1]:
        bundle = text(snapshot.objects.get(name, {}), "metadata", "annotations", _BUNDLE)
        numbers = tuple(map(int, re.findall(r"\d+", bundle)[:2]))
        if bundle and numbers < _LEAST_BUNDLE:
            yield warning(
                _CHECK,
                "Gateway API",
                f"its CustomResourceDefinitions have version {bundle}, but Envoy Gateway needs v1.5",
                "Ask their owner to upgrade them before the stack is installed",
            )


def _gateway_manager(snapshot: Snapshot) -> str:
    """Return the cloud that includes its own gateway controller; empty for other clouds."""
    names = [text(value, "spec", "controllerName") for value in snapshot.gateway_classes]
    clouds = (cloud for cloud in CLOUDS if any(name.startswith(cloud.platform.gateway_controllers) for name in names))
    return next((cloud.source for cloud in clouds), "")


def _admission(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield existing Namespaces that do not admit privileged pods of the stack."""
    labels = {text(value, "metadata", "name"): fields(value, "metadata", "labels") for value in snapshot.namespaces}
    seen = set()
    for entry in desired.managed:
        namespace = str(entry.get("namespace") or "")
        level = text(labels.get(namespace), "pod-security.kubernetes.io/enforce")
        is_managed = text(labels.get(namespace), MANAGED_BY_LABEL) == MANAGED_BY
        if entry.get("privileged") and not is_managed and level in ("baseline", "restricted") and namespace not in seen:
            seen.add(namespace)
            yield Finding(
                _CHECK,
                f"Namespace {namespace}",
                f"it already exists, and its Pod Security level {level} does not admit the pods of {entry['key']}",
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
        # One that is scheduled on no node allocates nothing.
        and (nodes or fields(value, "status").get("desiredNumberScheduled") != 0)
    ]
    if not nodes and not plugins:
        return
    yield warning(
        "device-plugin",
        some(sorted(map(named, plugins))) or f"Node {some(sorted(nodes))}",
        f"it allocates the GPUs of {some(sorted(nodes))} as nvidia.com/gpu"
        if nodes
        else "it allocates GPUs as nvidia.com/gpu",
        "The DRA driver would allocate the same GPUs again. Keep the device plugin off these nodes"
        + "".join(
            f" (on {cloud.source} with the label {cloud.platform.no_device_plugin})"
            for cloud in CLOUDS
            if cloud.platform.no_device_plugin and _has_nodes_of(cloud, snapshot)
        ),
    )


def _has_nodes_of(cloud: Cloud, snapshot: Snapshot) -> bool:
    return any(cloud.platform.node_label in fields(node, "metadata", "labels") for node in snapshot.nodes)
