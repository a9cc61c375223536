# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Security contexts of engine pods, and the Pod Security level of their namespace.

Pods get the least privileges that they need: no capability, no token, the seccomp profile of the container runtime. No
user is set: most images run as root, and OpenShift assigns a user ID itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from .. import api
from ..api.model_replica import ResolvedDeviceRequest
from ..api.pod_security import BASELINE_CAPABILITIES, IPC_LOCK
from ..cloud.registry import CLOUDS
from ..wire import Object
from .member import Member

LABEL_PREFIX = "pod-security.kubernetes.io/"
"""Prefix of the labels of a Namespace that Pod Security admission reads."""

_ENFORCE = f"{LABEL_PREFIX}enforce"
_WARN = f"{LABEL_PREFIX}warn"
_BASELINE = "baseline"
_PRIVILEGED = "privileged"
_LEVELS = ("restricted", _BASELINE, _PRIVILEGED)

_NETWORK_CLASSES = frozenset(name for cloud in CLOUDS for name in cloud.platform.network_device_classes)
# Matches CEL that only devices of DRANET satisfy: it names their driver, or reads attributes that it publishes.
_NETWORK_SELECTOR = re.compile(
    r"""driver\s*==\s*["']dra\.net["']|["']dra\.net["']\s*(==\s*device\.driver|in\s)"""
    r"""|(attributes|capacity)\s*\[\s*["']dra\.net["']\s*\]"""
)


def pod_security_context(member: Member) -> dict[str, Any]:
    """Return the securityContext of a member's pod: the user's fields over the defaults."""
    user_context = member.placed.template.spec.security_context
    return {"seccompProfile": {"type": "RuntimeDefault"}, **(api.wire(user_context) if user_context else {})}


def container_security_context(member: Member) -> dict[str, Any]:
    """Return the securityContext of a member's container.

    A container that claims a network device can lock memory, for RDMA.
    """
    context_written = member.container.security_context
    capabilities = context_written.capabilities if context_written else None
    user_fields = api.wire(context_written) if context_written else {}
    user_fields.pop("capabilities", None)
    added = tuple((capabilities.add if capabilities else None) or ())
    if claims_network_devices(member.device_requests):
        added = (*added, IPC_LOCK)
    context = {**confined(), **user_fields}
    if added:
        context["capabilities"] = {"add": list(dict.fromkeys(added)), **context["capabilities"]}
    return context


def confined() -> dict[str, Any]:
    """Return the securityContext of a container that needs no privileges."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def claims_network_devices(requests: Iterable[ResolvedDeviceRequest]) -> bool:
    """Return True when any of these device requests is for an RDMA network interface."""
    return any(
        request.device_class_name in _NETWORK_CLASSES
        or any(_NETWORK_SELECTOR.search(selector.cel or "") for selector in request.selectors or ())
        for request in requests
    )


def namespace_labels(members: Iterable[Member] = ()) -> dict[str, str]:
    """Return the labels of a Namespace that has to admit the pods of these members.

    IPC_LOCK needs the level `privileged`: the next stricter one, `baseline`, does not admit it.
    """
    added = {
        capability
        for member in members
        for capability in container_security_context(member)["capabilities"].get("add") or ()
    }
    return {_ENFORCE: _PRIVILEGED if added - set(BASELINE_CAPABILITIES) else _BASELINE, _WARN: "restricted"}


def laxer(namespace_object: Object, alternative: Object) -> Object:
    """Return the one of two composed versions of a Namespace that admits more: the pods of both have to be admitted."""
    return max(
        namespace_object,
        alternative,
        key=lambda namespace: _laxness((namespace["metadata"].get("labels") or {}).get(_ENFORCE)),
    )


def _laxness(level: str | None) -> int:
    return _LEVELS.index(level) if level in _LEVELS else -1
