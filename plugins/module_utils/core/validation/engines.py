# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of engines beyond their schema: images, variables, resources, and by other files all the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..api.pod_template import ResourceList
from ..api.shape import fields_of
from ..compose import images
from ..compose.model_gateway import backends
from ..devices.quantity import Quantity, QuantityError
from ..problem import Problem, warning
from ..text import NOT_TEMPLATED, field_path, meant_memory, short
from .agreement import cache_agreement, engines_agreement
from .devices import is_tiny
from .model_gateways import Fleet, engine_namespace
from .serving import engine_serving
from .volumes import pod_volumes

# No container starts with less.
_LEAST_BYTES = 1024**2
# Nodes with GPUs have fewer.
_MOST_CORES = 1000
_SHOWN_CORES = 10**18
# One variable and nothing else: templates that engines fill in themselves (of chats) say more.
_TEMPLATE = re.compile(r"(?:^|=)\{\{-?\s*[\w.]+\s*-?\}\}$")


def deployment_engines(deployment: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield the problems of the engines of a ModelDeployment."""
    yield from engine_namespace(deployment, fleet)
    template = deployment.spec.template.spec
    yield from _engines(template.engines, "spec.template.spec", template.serving)
    yield from cache_agreement(deployment, fleet)


def replica_engines(replica: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield the problems of the engines of a ModelReplica."""
    yield from engine_namespace(replica, fleet)
    yield from _engines(replica.spec.engines, "spec", replica.spec.serving)


def _engines(engines: Sequence[Any], base: str, serving: Any) -> Iterator[Problem]:
    for engine_index, engine in enumerate(engines):
        for member_index, member in enumerate(engine.members):
            container = member.template.spec.containers[0]
            path = f"{base}.engines[{engine_index}].members[{member_index}].template.spec.containers[0]"
            yield from _image(container, path)
            yield from _variables(container, path)
            yield from _amounts(container, path)
            yield from pod_volumes(member.template.spec, path.removesuffix(".containers[0]"))
        yield from engine_serving(engine, engines, f"{base}.engines[{engine_index}]")
    yield from engines_agreement(engines, base, serving)


def _image(container: Any, path: str) -> Iterator[Problem]:
    """Yield an image that no container runtime can pull, and values that are templates as a whole."""
    if images.reference(container.image) is None:
        hint = NOT_TEMPLATED if "{{" in container.image else "Write it like registry.example.com/folder/name:tag"
        yield Problem("is not a reference to an image", f"{path}.image", short(container.image), hint)
    for field in ("command", "args"):
        for index, argument in enumerate(getattr(container, field) or ()):
            if _TEMPLATE.search(argument):
                yield warning("is a template", f"{path}.{field}[{index}]", NOT_TEMPLATED)
    for index, variable in enumerate(container.env or ()):
        if _TEMPLATE.search(variable.value or ""):
            yield warning("is a template", f"{path}.env[{index}].value", NOT_TEMPLATED)


def _variables(container: Any, path: str) -> Iterator[Problem]:
    """Yield duplicate variables, and variables with the private key of Model gateways.

    Server-side apply merges `env` by name and rejects duplicates. With the key, any holder can act as the gateway for
    all clusters.
    """
    first_indexes: dict[str, int] = {}
    for index, variable in enumerate(container.env or ()):
        secret = variable.value_from and variable.value_from.secret_key_ref
        if secret and secret.name == backends.CLIENT_CERTIFICATE:
            location = f"{path}.env[{index}].valueFrom.secretKeyRef.name"
            yield Problem(
                "is the Secret of a gateway's own certificate", location, secret.name, "Name a Secret of yours"
            )
        if first_indexes.setdefault(variable.name, index) != index:
            message = f"is a duplicate of env[{first_indexes[variable.name]}]"
            yield Problem(message, f"{path}.env[{index}].name", short(variable.name), "Keep one of the two")


def _amounts(container: Any, path: str) -> Iterator[Problem]:
    """Yield invalid quantities, and requests above their limit. Kubernetes rejects both."""
    resources = container.resources
    if resources is None:
        return
    for wire, field in fields_of(ResourceList).items():
        amounts = []
        for section in ("requests", "limits"):
            quantity = getattr(getattr(resources, section), field.attribute, None)
            if quantity is None:
                continue
            try:
                amounts.append(Quantity.parse(quantity))
            except QuantityError as error:
                location = field_path(f"{path}.resources.{section}", wire)
                yield Problem(f"is not a valid quantity: {error}", location, short(quantity))
            else:
                yield from _implausible(wire, amounts[-1], field_path(f"{path}.resources.{section}", wire))
        if len(amounts) == 2 and amounts[0] > amounts[1]:
            location = field_path(f"{path}.resources.requests", wire)
            hint = f"Lower it, or raise or remove limits.{wire}"
            yield Problem(f"is more than the limit, {amounts[1]}", location, short(amounts[0].text), hint)


def _implausible(resource: str, amount: Quantity, path: str) -> Iterator[Problem]:
    """Yield memory or disk space in bytes that lacks its unit, and a CPU with the unit of memory or without its `m`."""
    if resource == "cpu" and amount.value > _MOST_CORES:
        cores = f"{int(amount.value):,}" if amount.value < _SHOWN_CORES else "more than 10^18"
        thousandths = re.fullmatch(r"([0-9]+)M?", amount.text)
        hint = f"Did you mean {thousandths[1]}m?" if thousandths else "Write a number of cores, such as 4 or 500m"
        yield warning(f"is {cores} cores, and GPU nodes have fewer than 1,000", path, hint, short(amount.text))
    elif resource != "cpu" and is_tiny(amount.text, _LEAST_BYTES):
        suggestion = meant_memory(amount.text)
        hint = f"Add the unit, such as {suggestion}" if suggestion else "Add the unit, such as 64Gi"
        yield warning("is less than 1 MiB", path, hint, short(amount.text))
