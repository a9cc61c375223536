# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What the pods of engines may do on their node, and which pods their namespace lets in.

Pods get as little as they need: no capability, no token, the seccomp profile of the container runtime. No user is set:
most images run as root, and OpenShift picks a number by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_security import (
    BASELINE_CAPABILITIES,
    IPC_LOCK,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.member import Member

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
    """The securityContext of a member's pod: what the user wrote, on top of the least."""
    written = member.wire["template"]["spec"].get("securityContext") or {}
    return {"seccompProfile": {"type": "RuntimeDefault"}, **deepcopy(dict(written))}


def container_security_context(member: Member) -> dict[str, Any]:
    """The securityContext of a member's container. Whoever claims a network device may pin memory, for RDMA."""
    written = deepcopy(dict(member.container.get("securityContext") or {}))
    added = (written.pop("capabilities", None) or {}).get("add") or ()
    if claims_network_devices(member.device_requests):
        added = (*added, IPC_LOCK)
    context = {**confined(), **written}
    if added:
        context["capabilities"] = {"add": list(dict.fromkeys(added)), **context["capabilities"]}
    return context


def confined() -> dict[str, Any]:
    """The securityContext of a container that needs no right at all."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def claims_network_devices(requests: Iterable[Mapping[str, Any]]) -> bool:
    """Whether any of these device requests (wire form) is for an interface that does RDMA."""
    return any(
        request["deviceClassName"] in _NETWORK_CLASSES
        or any(_NETWORK_SELECTOR.search(selector.get("cel") or "") for selector in request.get("selectors") or ())
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


def laxer(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """That of two composed forms of a Namespace that lets in more: the pods of both have to get in."""
    return max(one, other, key=lambda namespace: _laxness((namespace["metadata"].get("labels") or {}).get(_ENFORCE)))


def _laxness(level: str | None) -> int:
    return _LEVELS.index(level) if level in _LEVELS else -1
