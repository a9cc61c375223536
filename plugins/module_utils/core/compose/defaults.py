# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Defaults and canonical values of built objects, as the API server stores them.

GitOps tools compare the lists in a folder with the lists on the API server. If the server adds a default to a list
item, or normalizes a value (`12288Mi` becomes `12Gi`), each comparison shows a difference, and automatic syncs apply
the object repeatedly. Fields outside of lists need no default, because GitOps tools ignore fields that the folder does
not set.

The tables contain the fields that this collection composes and the fields of pods that users can set. A LeaderWorkerSet
only has the defaults of its CRD and of its webhook: any other field would create a new revision and restart its pods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

from ..devices.quantity import canonical_text
from ..wire import Object, identity
from . import constants

Rules = dict[str, Any]
"""Rules by path. A rule is a function that returns the canonical form of a value, or a map of defaults. A function in
this map computes the default from the map of the object."""


@dataclass
class _Node:
    """Rules of a value, and of the fields or the items below it."""

    fields: dict[str, _Node] = field(default_factory=dict)
    items: _Node | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    canonical: Callable[[Any], Any] | None = None


def with_defaults(value: Object) -> Object:
    """Return an object with the defaults of its lists and with canonical values. `value` is not changed."""
    tree = _TREES.get(identity(value)[1])
    filled: Object = _fill(value, tree) if tree else value
    return filled


def _fill(value: Any, node: _Node) -> Any:
    # Types are compared first because a check against an abstract class takes ten times as long.
    if node.items is not None:
        items = node.items
        return [_fill(item, items) for item in value] if isinstance(value, (list, tuple)) else value
    if (node.fields or node.defaults) and isinstance(value, (dict, Mapping)):
        filled = {
            **{name: rule(value) if callable(rule) else rule for name, rule in node.defaults.items()},
            **value,
        }
        for name in node.fields.keys() & value.keys():
            filled[name] = _fill(value[name], node.fields[name])
        value = filled
    return node.canonical(value) if node.canonical else value


def _pull_policy(container: Mapping[str, Any]) -> str:
    """Return the default of `imagePullPolicy` (Kubernetes documentation, "Images")."""
    name, __, digest = str(container.get("image", "")).partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") and not digest else "IfNotPresent"


def _quantity(amount: Any, digits: int = 9) -> Any:
    return canonical_text(amount, digits) if isinstance(amount, str) else amount


def _quantities(amounts: Any, digits: int = 9) -> Any:
    if not isinstance(amounts, Mapping):
        return amounts
    return {name: _quantity(amount, digits) for name, amount in amounts.items()}


_rounded_quantities = partial(_quantities, digits=3)
"""Round quantities up to thousandths, as the API server does for built-in kinds."""


def _without_empty(value: Any) -> Any:
    """Return a map without its empty lists and texts."""
    if not isinstance(value, Mapping):
        return value
    return {name: item for name, item in value.items() if item not in ("", [], ())}


_HTTP_GET = {"path": "/", "scheme": "HTTP"}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CONTAINERS = ("containers[]", "initContainers[]")
_FILES = {"defaultMode": 0o644}


def _below(*prefixes: str, rules: Rules) -> Rules:
    return {f"{prefix}.{path}" if path else prefix: rule for prefix in prefixes for path, rule in rules.items()}


# Rules for pods of all kinds.
_CANONICAL_POD: Rules = {
    "securityContext": _without_empty,
    "volumes[].emptyDir.sizeLimit": _quantity,
    **_below(
        *_CONTAINERS,
        rules={
            "": _without_empty,
            "env[]": _without_empty,
            "ports[]": {"protocol": "TCP"},
            "resources.limits": _quantities,
            "resources.requests": _quantities,
            "securityContext.capabilities": _without_empty,
            **{f"{probe}.grpc": {"service": ""} for probe in _PROBES},
        },
    ),
}
# Additional rules for pods of Deployments and Jobs.
_POD: Rules = {
    **{f"volumes[].{source}": _FILES for source in ("configMap", "secret", "projected", "downwardAPI")},
    "volumes[].projected.sources[].serviceAccountToken": {"expirationSeconds": 3600},
    "volumes[].downwardAPI.items[].fieldRef": {"apiVersion": "v1"},
    **_below(
        *_CONTAINERS,
        rules={
            "": {
                "imagePullPolicy": _pull_policy,
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            },
            "env[].valueFrom.fieldRef": {"apiVersion": "v1"},
            "resources.limits": _rounded_quantities,
            "resources.requests": _rounded_quantities,
            **{f"lifecycle.{hook}.httpGet": _HTTP_GET for hook in ("postStart", "preStop")},
            **dict.fromkeys(_PROBES, _PROBE),
            **{f"{probe}.httpGet": _HTTP_GET for probe in _PROBES},
        },
    ),
}


def _tree(*tables: Rules) -> _Node:
    root = _Node()
    for table in tables:
        for path, rule in table.items():
            node = root
            for segment in filter(None, path.split(".")):
                node = node.fields.setdefault(segment.removesuffix("[]"), _Node())
                if segment.endswith("[]"):
                    node.items = node.items or _Node()
                    node = node.items
            if callable(rule):
                node.canonical = rule
            else:
                node.defaults.update(rule)
    return root


_TEMPLATE = "spec.template.spec"
_GANG = ("spec.leaderWorkerTemplate.leaderTemplate.spec", "spec.leaderWorkerTemplate.workerTemplate.spec")
_TREES: Mapping[str, _Node] = {
    **dict.fromkeys(
        ("Deployment", "Job"), _tree(_below(_TEMPLATE, rules=_CANONICAL_POD), _below(_TEMPLATE, rules=_POD))
    ),
    "LeaderWorkerSet": _tree(_below(*_GANG, rules=_CANONICAL_POD)),
    "PersistentVolumeClaim": _tree({"spec.resources.requests": _rounded_quantities}),
    "ResourceClaimTemplate": _tree({"spec.spec.devices.requests[].exactly": {"allocationMode": "ExactCount"}}),
    "Service": _tree({"spec.ports[]": {"protocol": "TCP", "targetPort": itemgetter("port")}}),
    "EndpointSlice": _tree({"": _without_empty}),
    "HTTPRoute": _tree(
        {
            "spec.parentRefs[]": {"group": constants.GATEWAY_GROUP, "kind": "Gateway"},
            "spec.rules[].matches[].path": {"type": "PathPrefix", "value": "/"},
            "spec.rules[].matches[].headers[]": {"type": "Exact"},
            "spec.rules[].backendRefs[]": {"group": "", "kind": "Service", "weight": 1},
        }
    ),
    "Gateway": _tree(
        {
            "spec.listeners[]": {"allowedRoutes": {"namespaces": {"from": "Same"}}},
            "spec.listeners[].allowedRoutes.namespaces": {"from": "Same"},
            "spec.listeners[].tls": {"mode": "Terminate"},
            "spec.listeners[].tls.certificateRefs[]": {"group": "", "kind": "Secret"},
        }
    ),
    "BackendTrafficPolicy": _tree({"spec.rateLimit.global.rules[].clientSelectors[].headers[]": {"invert": False}}),
}
