# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Defaults and canonical values of built objects, as the API server stores them.

Tools that apply a folder compare its lists with those of the API server. A default that the server adds to an item of a
list, or a value that it writes in another way (`12288Mi` becomes `12Gi`), is a difference in each comparison, and a
tool that corrects differences applies the object again and again. Fields outside of lists need no default, because
these tools ignore fields that the folder does not set.

The tables contain the fields that this collection composes and the fields of pods that users can set. The defaults of a
LeaderWorkerSet are only those of its definition and of its webhook: a further field would be another revision of its
pods, and restart them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.quantity import canonical_text
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, identity

Map = dict[str, Any]

_FILE_MODE = 0o644


@dataclass
class _Node:
    """Rules of a value: the fields below it, the defaults of missing fields, and the function for the value itself."""

    below: dict[str, _Node] = field(default_factory=dict)
    items: _Node | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    """Names of the defaults that are functions of the map."""
    change: Callable[[Any], Any] | None = None


def with_defaults(value: Object) -> Object:
    """Return an object with the defaults of its lists and with canonical values. `value` is not changed."""
    tree = _TREES.get(identity(value)[1])
    written: Object = _filled(value, tree) if tree else value
    return written


def _filled(value: Any, node: _Node) -> Any:
    # Types are compared first because a check against an abstract class takes ten times as long.
    if node.items is not None:
        items = node.items
        return [_filled(item, items) for item in value] if isinstance(value, (list, tuple)) else value
    if (node.below or node.defaults) and isinstance(value, (dict, Mapping)):
        filled = {**node.defaults, **value} if node.defaults else dict(value)
        for name in node.computed:
            if name not in value:
                filled[name] = node.defaults[name](filled)
        below = node.below
        for name in below.keys() & value.keys():
            filled[name] = _filled(value[name], below[name])
        value = filled
    return node.change(value) if node.change else value


def _pull_policy(container: Map) -> str:
    """Return the default of `imagePullPolicy` (Kubernetes documentation, "Images")."""
    name, __, digest = str(container.get("image", "")).partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") and not digest else "IfNotPresent"


def _amounts(amounts: Any, digits: int) -> Any:
    if not isinstance(amounts, Mapping):
        return amounts
    return {
        name: canonical_text(amount, digits) if isinstance(amount, str) else amount for name, amount in amounts.items()
    }


def _quantities(amounts: Any) -> Any:
    return _amounts(amounts, 9)


def _rounded_quantities(amounts: Any) -> Any:
    """Return amounts as the API server stores them in its own kinds: it rounds them up to thousandths."""
    return _amounts(amounts, 3)


def _quantity(amount: Any) -> Any:
    return canonical_text(amount) if isinstance(amount, str) else amount


def _without_empty_lists(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: item for name, item in value.items() if not (isinstance(item, (list, tuple)) and not item)}


def _without_empty_value(variable: Any) -> Any:
    if isinstance(variable, Mapping) and variable.get("value") == "":
        return {name: item for name, item in variable.items() if name != "value"}
    return variable


_HTTP_GET = {"path": "/", "scheme": "HTTP"}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CONTAINERS = ("containers[]", "initContainers[]")

Rules = dict[str, Any]
"""By path: the defaults of a map, or the function for a value."""

_CANONICAL_CONTAINER: Rules = {
    "": _without_empty_lists,
    "env[]": _without_empty_value,
    "ports[]": {"protocol": "TCP"},
    "resources.limits": _quantities,
    "resources.requests": _quantities,
    "securityContext.capabilities": _without_empty_lists,
}
_CONTAINER: Rules = {
    "env[].valueFrom.fieldRef": {"apiVersion": "v1"},
    **{f"lifecycle.{hook}.httpGet": _HTTP_GET for hook in ("postStart", "preStop")},
    **dict.fromkeys(_PROBES, _PROBE),
    **{f"{probe}.httpGet": _HTTP_GET for probe in _PROBES},
    **{f"{probe}.grpc": {"service": ""} for probe in _PROBES},
}
_ROUNDED = {f"resources.{name}": _rounded_quantities for name in ("limits", "requests")}
_CONTAINER_DEFAULTS: Map = {
    "imagePullPolicy": _pull_policy,
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


def _below(prefix: str, rules: Rules) -> Rules:
    return {f"{prefix}.{path}" if path else prefix: rule for path, rule in rules.items()}


_CANONICAL_POD: Rules = {
    "securityContext": _without_empty_lists,
    "volumes[].emptyDir.sizeLimit": _quantity,
    **{path: rule for name in _CONTAINERS for path, rule in _below(name, _CANONICAL_CONTAINER).items()},
}
_POD: Rules = {
    "volumes[].configMap": {"defaultMode": _FILE_MODE},
    "volumes[].secret": {"defaultMode": _FILE_MODE},
    "volumes[].projected": {"defaultMode": _FILE_MODE},
    "volumes[].projected.sources[].serviceAccountToken": {"expirationSeconds": 3600},
    "volumes[].downwardAPI": {"defaultMode": _FILE_MODE},
    "volumes[].downwardAPI.items[].fieldRef": {"apiVersion": "v1"},
    **{path: rule for name in _CONTAINERS for path, rule in _below(name, _CONTAINER).items()},
}
_GATEWAY = {"group": constants.GATEWAY_GROUP, "kind": "Gateway"}
_SERVICE = {"group": "", "kind": "Service"}
_ROUTE: Rules = {
    "spec.parentRefs[]": _GATEWAY,
    "spec.rules[].matches[].path": {"type": "PathPrefix", "value": "/"},
    "spec.rules[].matches[].headers[]": {"type": "Exact"},
    "spec.rules[].backendRefs[]": {**_SERVICE, "weight": 1},
}
_LISTENER: Rules = {
    "": {"allowedRoutes": {"namespaces": {"from": "Same"}}},
    "allowedRoutes.namespaces": {"from": "Same"},
    "tls": {"mode": "Terminate"},
    "tls.certificateRefs[]": {"group": "", "kind": "Secret"},
}


def _tree(*tables: Rules) -> _Node:
    root = _Node()
    for table in tables:
        for path, rule in table.items():
            node = root
            for part in filter(None, path.split(".")):
                name, is_list = part.removesuffix("[]"), part.endswith("[]")
                node = node.below.setdefault(name, _Node())
                if is_list:
                    node.items = node.items or _Node()
                    node = node.items
            if callable(rule):
                node.change = rule
            else:
                node.defaults.update(rule)
                node.computed += [name for name, default in rule.items() if callable(default)]
    return root


def _pods(path: str) -> Rules:
    """Return the rules of a pod template of Kubernetes."""
    containers: Rules = {f"{path}.{name}": _CONTAINER_DEFAULTS for name in _CONTAINERS}
    for name in _CONTAINERS:
        containers |= _below(f"{path}.{name}", _ROUNDED)
    return {**_below(path, _POD), **containers}


_TEMPLATE = "spec.template.spec"
_GANG = ("spec.leaderWorkerTemplate.leaderTemplate.spec", "spec.leaderWorkerTemplate.workerTemplate.spec")
_GRPC = {f"{container}.{probe}.grpc": {"service": ""} for container in _CONTAINERS for probe in _PROBES}
_TREES: Mapping[str, _Node] = {
    **dict.fromkeys(("Deployment", "Job"), _tree(_below(_TEMPLATE, _CANONICAL_POD), _pods(_TEMPLATE))),
    "LeaderWorkerSet": _tree(*(_below(path, {**_CANONICAL_POD, **_GRPC}) for path in _GANG)),
    "PersistentVolumeClaim": _tree({"spec.resources.requests": _rounded_quantities}),
    "ResourceClaimTemplate": _tree({"spec.spec.devices.requests[].exactly": {"allocationMode": "ExactCount"}}),
    "Service": _tree({"spec.ports[]": {"protocol": "TCP", "targetPort": itemgetter("port")}}),
    "EndpointSlice": _tree({"": _without_empty_lists}),
    "HTTPRoute": _tree(_ROUTE),
    "Gateway": _tree(_below("spec.listeners[]", _LISTENER)),
    "BackendTrafficPolicy": _tree(
        {"spec.rateLimit.global.rules[].clientSelectors[].headers[]": {"invert": False}},
    ),
}
