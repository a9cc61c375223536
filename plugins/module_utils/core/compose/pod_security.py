# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Security contexts of engine pods, and the Pod Security level of their namespace.

Pods get as little as they need: no capability, no token, the seccomp profile of the container runtime. No user is set:
most images run as root, and OpenShift picks a number by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_replica import ResolvedDeviceRequest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_security import (
    BASELINE_CAPABILITIES,
    IPC_LOCK,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object

LABEL_PREFIX = "pod-security.kubernetes.io/"
"""Of the labels of a Namespace that Kubernetes' Pod Security admission reads."""

_ENFORCE = f"{LABEL_PREFIX}enforce"
_WARN = f"{LABEL_PREFIX}warn"
_BASELINE = "baseline"
_PRIVILEGED = "privileged"
_LEVELS = ("restricted", _BASELINE, _PRIVILEGED)

_NETWORK_CLASSES = frozenset({"efa.networking.k8s.aws", "mrdma.google.com"})
"""DeviceClasses of interfaces for RDMA: of AWS (EFA) and of GKE's managed DRANET."""
# A condition that only devices of DRANET meet: it names their driver, or reads what that driver publishes.
_NETWORK_SELECTOR = re.compile(
    r"""driver\s*==\s*["']dra\.net["']|["']dra\.net["']\s*(==\s*device\.driver|in\s)"""
    r"""|(attributes|capacity)\s*\[\s*["']dra\.net["']\s*\]"""
)


def pod_security_context(member: Member) -> dict[str, Any]:
    """Return the securityContext of a member's pod: what the user wrote, on top of the least."""
    written = member.placed.template.spec.security_context
    return {"seccompProfile": {"type": "RuntimeDefault"}, **(api.wire(written) if written else {})}


def container_security_context(member: Member) -> dict[str, Any]:
    """Return the securityContext of a member's container. One that claims a network device may pin memory, for RDMA."""
    context_written = member.container.security_context
    capabilities = context_written.capabilities if context_written else None
    written = api.wire(context_written) if context_written else {}
    written.pop("capabilities", None)
    added = tuple((capabilities.add if capabilities else None) or ())
    if claims_network_devices(member.device_requests):
        added = (*added, IPC_LOCK)
    context = {**confined(), **written}
    if added:
        context["capabilities"] = {"add": list(dict.fromkeys(added)), **context["capabilities"]}
    return context


def confined() -> dict[str, Any]:
    """The securityContext of a container that needs no right at all."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def claims_network_devices(requests: Iterable[ResolvedDeviceRequest]) -> bool:
    """Return True when any of these device requests is for an interface that does RDMA."""
    return any(
        request.device_class_name in _NETWORK_CLASSES
        or any(_NETWORK_SELECTOR.search(selector.cel or "") for selector in request.selectors or ())
        for request in requests
    )


def namespace_labels(members: Iterable[Member] = ()) -> dict[str, str]:
    """The labels of a Namespace that has to let in the pods of these members.

    Between `baseline`, which does not let IPC_LOCK in, and `privileged` there is no level.
    """
    added = {
        capability
        for member in members
        for capability in container_security_context(member)["capabilities"].get("add") or ()
    }
    return {_ENFORCE: _PRIVILEGED if added - set(BASELINE_CAPABILITIES) else _BASELINE, _WARN: "restricted"}


def laxer(one: Object, other: Object) -> Object:
    """Return that of two composed forms of a Namespace that lets in more: the pods of both have to get in."""
    return max(one, other, key=lambda namespace: _laxness((namespace["metadata"].get("labels") or {}).get(_ENFORCE)))


def _laxness(level: str | None) -> int:
    return _LEVELS.index(level) if level in _LEVELS else -1
