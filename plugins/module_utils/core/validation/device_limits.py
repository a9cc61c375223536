# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Limits of Kubernetes on devices and claims (`core/devices/limits.py`). The API server accepts nothing beyond them.

Numbers of requests, constraints and selectors have lower limits of their own in `core/api/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..devices.limits import MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES_AND_CAPACITIES, MAX_DOMAIN, MAX_DRIVER, MAX_ID
from ..problem import Problem
from ..scheduling.eligibility import oversized_claim
from ..scheduling.fabric import FABRIC_DRIVER
from ..scheduling.model import Constraint, Request
from ..text import entry_path, short
from .devices import Classes, named_domains

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_CLASS_NAME = 253


def class_limits(inference_class: Any, _fleet: object) -> Iterator[Problem]:
    """Yield the values of claimed devices of an InferenceClass that no driver can publish. Only the plan contains
    Synthetic devices."""
    for index, device in enumerate(inference_class.spec.devices):
        if device.claim != "DRA":
            continue
        path = f"spec.devices[{index}]"
        yield from _name(device.driver, MAX_DRIVER, "driver name", f"{path}.driver")
        yield from _name(device.device_class_name or "", _MAX_CLASS_NAME, "name", f"{path}.deviceClassName")
        attributes, capacity = device.attributes or {}, device.capacity or {}
        if len(attributes) + len(capacity) > MAX_ATTRIBUTES_AND_CAPACITIES:
            message = (
                f"has {len(attributes) + len(capacity)} attributes and capacities, and Kubernetes accepts at most "
                f"{MAX_ATTRIBUTES_AND_CAPACITIES} of a device"
            )
            yield Problem(message, path, hint="Remove attributes and capacities that no selector reads")
        for section, names in (("attributes", attributes), ("capacity", capacity)):
            for name in names:
                yield from _qualified_name(name, entry_path(f"{path}.{section}", name))
        for name, attribute in attributes.items():
            for field in ("string", "version"):
                size = len((getattr(attribute, field) or "").encode())
                if size > MAX_ATTRIBUTE_VALUE:
                    message = f"has {size} bytes, and Kubernetes accepts at most {MAX_ATTRIBUTE_VALUE} of an attribute"
                    location = f"{entry_path(f'{path}.attributes', name)}.{field}"
                    yield Problem(message, location, short(getattr(attribute, field)), "Write the value of the driver")


def deployment_limits(deployment: Any, fleet: Classes) -> Iterator[Problem]:
    """Yield the constraints of a ModelDeployment that Kubernetes does not accept, or that no claim can meet."""
    synthetic = {FABRIC_DRIVER} | {
        device.driver
        for inference_class in fleet.of_kind("InferenceClass")
        for device in inference_class.spec.devices
        if device.claim == "Synthetic"
    }
    for engine_index, engine in enumerate(deployment.spec.template.spec.engines):
        for index, member in enumerate(engine.members):
            selector = member.node_selector
            if selector is None or not selector.constraints:
                continue
            path = f"spec.template.spec.engines[{engine_index}].members[{index}].nodeSelector.constraints"
            for position, constraint in enumerate(selector.constraints):
                yield from _qualified_name(constraint.match_attribute, f"{path}[{position}].matchAttribute")
            if not fleet.unknown("InferenceClass"):
                yield from _oversized(selector, synthetic, path)


def _oversized(selector: Any, synthetic: set[str], path: str) -> Iterator[Problem]:
    """Yield the error of constraints that join more devices than a claim can have. Requests that a Synthetic device
    might serve do not count."""
    requests = [
        Request(request.name, request.count)
        for request in selector.devices
        if not any(synthetic & named_domains(selector.cel or "") for selector in request.selectors)
    ]
    constraints = [
        Constraint(constraint.match_attribute, tuple(constraint.requests or ())) for constraint in selector.constraints
    ]
    reason = oversized_claim(requests, constraints)
    if reason:
        message, __, hint = reason.partition(". ")
        yield Problem(f"cannot be met: {message}", path, hint=hint)


def _name(name: str, maximum: int, noun: str, path: str) -> Iterator[Problem]:
    if len(name) > maximum:
        yield Problem(
            f"has {len(name)} characters, and a {noun} has at most {maximum} in Kubernetes", path, short(name)
        )
    elif name and not _SUBDOMAIN.fullmatch(name.lower() if path.endswith(".driver") else name):
        message = f"is not a {noun} in Kubernetes"
        hint = "Write a DNS subdomain, such as gpu.example.com"
        yield Problem(message, path, short(name), hint)


def _qualified_name(name: str, path: str) -> Iterator[Problem]:
    """Yield the error of an invalid name of an attribute or a capacity, with or without a domain."""
    domain, slash, identifier = name.rpartition("/")
    if len(domain) > MAX_DOMAIN:
        yield Problem(
            f"has a domain of {len(domain)} characters, and Kubernetes accepts at most {MAX_DOMAIN}", path, short(name)
        )
    elif slash and not _SUBDOMAIN.fullmatch(domain.lower()):
        yield Problem("has a domain that is not a DNS subdomain", path, short(name), "Write domain/name")
    if len(identifier) > MAX_ID:
        message = f"has {len(identifier)} characters without its domain, and Kubernetes accepts at most {MAX_ID}"
        yield Problem(message, path, short(name))
    elif not _IDENTIFIER.fullmatch(identifier):
        hint = "Use letters, digits and _, and begin with a letter or _"
        yield Problem("is not a name of an attribute or a capacity in Kubernetes", path, short(name), hint)
