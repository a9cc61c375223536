# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names and claims of devices that the API server does not accept (`core/devices/limits.py`).

Numbers of requests, constraints and selectors have lower limits in `core/api/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.limits import (
    MAX_DOMAIN,
    MAX_DRIVER,
    MAX_ID,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.eligibility import oversized_claim
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fabric import FABRIC_DRIVER
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Constraint, Request
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import entry_path, short
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation.devices import (
    Classes,
    named_domains,
)

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def class_limits(inference_class: Any, _fleet: object) -> Iterator[Problem]:
    """Yield the invalid names of claimed devices of an InferenceClass. Synthetic devices exist in the plan only."""
    for index, device in enumerate(inference_class.spec.devices):
        if device.claim != "DRA":
            continue
        path = f"spec.devices[{index}]"
        if len(device.driver) > MAX_DRIVER or not _SUBDOMAIN.fullmatch(device.driver.lower()):
            hint = f"Write a DNS subdomain of at most {MAX_DRIVER} characters, such as gpu.example.com"
            yield Problem("is not a driver name in Kubernetes", f"{path}.driver", short(device.driver), hint)
        class_name = device.device_class_name
        if class_name and not _SUBDOMAIN.fullmatch(class_name):
            hint = "Write a lowercase DNS subdomain, such as gpu.example.com"
            yield Problem("is not a name in Kubernetes", f"{path}.deviceClassName", short(class_name), hint)
        for part in ("attributes", "capacity"):
            for name in getattr(device, part) or {}:
                yield from _qualified_name(name, entry_path(f"{path}.{part}", name))


def deployment_limits(deployment: Any, fleet: Classes) -> Iterator[Problem]:
    """Yield the constraints of a ModelDeployment that Kubernetes does not accept, or that no claim can meet."""
    synthetic_drivers = {FABRIC_DRIVER} | {
        device.driver
        for inference_class in fleet.of_kind("InferenceClass")
        for device in inference_class.spec.devices
        if device.claim == "Synthetic"
    }
    for engine_index, engine in enumerate(deployment.spec.template.spec.engines):
        for member_index, member in enumerate(engine.members):
            selector = member.node_selector
            if selector is None or not selector.constraints:
                continue
            path = f"spec.template.spec.engines[{engine_index}].members[{member_index}].nodeSelector.constraints"
            for position, constraint in enumerate(selector.constraints):
                yield from _qualified_name(constraint.match_attribute, f"{path}[{position}].matchAttribute")
            if not fleet.unknown("InferenceClass"):
                yield from _oversized(selector, synthetic_drivers, path)


def _oversized(selector: Any, synthetic_drivers: set[str], path: str) -> Iterator[Problem]:
    """Yield the error of constraints that join more devices than a claim can have. Requests that a Synthetic device
    might serve do not count."""
    requests = [
        Request(request.name, request.count)
        for request in selector.devices
        if not any(synthetic_drivers & named_domains(entry.cel or "") for entry in request.selectors)
    ]
    constraints = [
        Constraint(constraint.match_attribute, tuple(constraint.requests or ())) for constraint in selector.constraints
    ]
    reason = oversized_claim(requests, constraints)
    if reason:
        message, __, hint = reason.partition(". ")
        yield Problem(f"cannot be met: {message}", path, hint=hint)


def _qualified_name(name: str, path: str) -> Iterator[Problem]:
    """Yield the error of an invalid name of an attribute or a capacity, with or without a domain."""
    domain, slash, identifier = name.rpartition("/")
    has_valid_domain = not slash or (len(domain) <= MAX_DOMAIN and _SUBDOMAIN.fullmatch(domain.lower()))
    if not has_valid_domain or len(identifier) > MAX_ID or not _IDENTIFIER.fullmatch(identifier):
        hint = (
            f"Write domain/name: a DNS subdomain of at most {MAX_DOMAIN} characters, and at most {MAX_ID} letters, "
            "digits and _ that do not begin with a digit"
        )
        yield Problem("is not a name of an attribute or a capacity in Kubernetes", path, short(name), hint)
