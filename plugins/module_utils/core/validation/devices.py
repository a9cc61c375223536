# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of the device claims of engines against their parallelism, libraries and topology.

Cases that cannot be determined have no finding.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from ..api import wire
from ..api.device import DeviceAttribute, is_memory
from ..cloud.cloud import Fabric
from ..cloud.registry import CLOUDS
from ..compose import constants
from ..devices.device import Device
from ..devices.quantity import Quantity, QuantityError
from ..devices.semver import Semver, SemverError
from ..problem import Problem, warning
from ..scheduling.fabric import FABRIC_DRIVER
from ..servers.command_line import CommandLine
from ..servers.flags import Parallelism, parallelism
from ..servers.table import SERVERS, TENSOR
from ..text import count, entry_path, meant_device_memory, meant_quantity, nearest, short

Kind = Literal["gpu", "network", "fabric", ""]

_FABRICS = tuple(fabric for cloud in CLOUDS for fabric in cloud.fabrics)
# Images of Docker Hub that have the libraries of none of these fabrics.
_STOCK_IMAGES = tuple(server.released for server in SERVERS.values() if server.released)
_DOCKER_HUB = ("docker.io/", "index.docker.io/", "registry-1.docker.io/")
_NETWORK_LABELS = frozenset(("net", "nic", "rdma", "efa", "roce", "sriov"))
_DOMAIN = re.compile(
    r"""\bdevice\.(?:attributes|capacity)\[\s*(["'])([^"'\\]+)\1|\bdevice\.driver\s*==\s*(["'])([^"'\\]+)\3"""
)
# With any of these, a device may match without the domains that the expression names.
_UNSURE = re.compile(r"\|\||\?|!(?!=)|\bfalse\b")


LEAST_DEVICE_MEMORY = 1024**3
"""Memory in bytes that every GPU has."""
KNOWN_CAPACITIES = (
    *("memory", "multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines"),
    *("computeUnits", "simdUnits"),
)
"""Capacities that the DRA drivers of NVIDIA and AMD publish (deviceinfo.go of both)."""
KNOWN_ATTRIBUTES = (
    *("addressingMode", "architecture", "brand", "cudaComputeCapability", "cudaDriverVersion", "driverVersion"),
    *("minor", "parentUUID", "pciBusID", "pcieRoot", "productName", "profile", "type", "uuid"),
    *("driverSrcVersion", "family", "partitionProfile"),
)
"""Attributes that these drivers publish."""
# Similarity of a misspelled name, and its missing or additional letters: `memroy` is a misspelled `memory`, and
# `rocmDriverVersion` is not a misspelled `driverVersion`.
_MISSPELT_NAME = 0.8
_MOST_LETTERS = 2


class Classes(Protocol):
    """InferenceClasses of a fleet."""

    def complete(self, kind: str) -> bool:
        """Return True if resources of this kind exist and all are valid."""

    def unknown(self, kind: str) -> bool:
        """Return True if the fleet has, or might have, resources of this kind with unknown content."""

    def of_kind(self, kind: str) -> Iterable[Any]:
        """Return all resources of a kind."""


def named_domains(expression: str) -> set[str]:
    """Return the drivers and the domains of attributes and capacities that a selector names."""
    return {match[1] or match[3] for match in _DOMAIN.findall(expression)}


def class_devices(inference_class: Any, _fleet: object) -> Iterator[Problem]:
    """Yield quantities and versions of an InferenceClass that Kubernetes does not accept, and other invalid devices."""
    for index, device in enumerate(inference_class.spec.devices):
        path = f"spec.devices[{index}]"
        problems = [*_invalid_versions(device, path), *_invalid_quantities(device, path)]
        yield from problems
        error = "" if problems else Device.from_wire(wire(device)).invalid
        if error:
            yield Problem(f"is not a valid device of Kubernetes: {error}", path)


def _invalid_versions(device: Any, path: str) -> Iterator[Problem]:
    for name, attribute in (device.attributes or {}).items():
        try:
            Semver.parse(attribute.version or "0.0.0")
        except SemverError:
            # The rest of the hint applies to numbers that lose a trailing zero in YAML.
            hint = DeviceAttribute.hint_of_amount(("version",), attribute.version).partition(" (")[0]
            hint = hint or "Write major.minor.patch without leading zeros, such as 9.0.0"
            field_path = f"{entry_path(f'{path}.attributes', name)}.version"
            yield Problem("is not a semantic version", field_path, short(attribute.version), hint)


def _invalid_quantities(device: Any, path: str) -> Iterator[Problem]:
    for name, capacity in (device.capacity or {}).items():
        try:
            Quantity.parse(capacity.value.strip())
        except QuantityError:
            suggestion = meant_quantity(capacity.value)
            if suggestion and is_memory(name) and not suggestion.endswith("i"):
                suggestion = f"{suggestion} or {suggestion[:-1]}{suggestion[-1].upper()}i"
            hint = f"Write {suggestion}" if suggestion else "Write a number and a unit, such as 81559Mi"
            field_path = f"{entry_path(f'{path}.capacity', name)}.value"
            yield Problem("is not a quantity of Kubernetes", field_path, short(capacity.value), hint)


def class_capacities(inference_class: Any, _fleet: object) -> Iterator[Problem]:
    """Yield warnings of GPUs of an InferenceClass with too little memory, or with names that are probably
    misspelled. Invalid quantities are reported elsewhere."""
    for index, device in enumerate(inference_class.spec.devices):
        if _kind_of({device.driver}) != "gpu":
            continue
        path = f"spec.devices[{index}]"
        yield from _misspelt(device.attributes or {}, KNOWN_ATTRIBUTES, f"{path}.attributes")
        yield from _misspelt(device.capacity or {}, KNOWN_CAPACITIES, f"{path}.capacity")
        for name, capacity in (device.capacity or {}).items():
            if is_memory(name) and is_tiny(capacity.value, LEAST_DEVICE_MEMORY):
                suggestion = meant_device_memory(capacity.value)
                hint = (
                    f"Did you mean {suggestion}?"
                    if suggestion
                    else "Write the value that the driver reports, such as 81559Mi"
                )
                field = f"{entry_path(f'{path}.capacity', name)}.value"
                yield warning(
                    "is less than 1 GiB of memory, and every GPU has more", field, hint, short(capacity.value)
                )


def _misspelt(names_by_user: Mapping[str, object], published: Collection[str], path: str) -> Iterator[Problem]:
    """Yield warnings of unknown names that are similar to a known name. `published`: the names that drivers publish."""
    names = {key.rpartition("/")[2] for key in names_by_user}
    for key in names_by_user:
        name = key.rpartition("/")[2]
        near = nearest(name, published, _MISSPELT_NAME)
        is_typo = abs(len(near) - len(name)) <= _MOST_LETTERS and near not in names
        if near and name not in published and is_typo:
            message = "is not a name that the drivers of NVIDIA and AMD publish"
            yield warning(message, entry_path(path, key), f"Did you mean {near}?")


def is_tiny(amount: str, minimum: int) -> bool:
    """Return True if a quantity is valid, positive, and smaller than a number."""
    try:
        return 0 < Quantity.parse(amount).value < minimum
    except QuantityError:
        return False


def deployment_devices(deployment: Any, fleet: Classes) -> Iterator[Problem]:
    """Yield the problems of the claims of a ModelDeployment's engines."""
    spec = deployment.spec.template.spec
    return _engines(spec.engines, _split(spec), "spec.template.spec", fleet)


def replica_devices(replica: Any, fleet: Classes) -> Iterator[Problem]:
    """Yield the problems of the claims of a ModelReplica's engines."""
    return _engines(replica.spec.engines, _split(replica.spec), "spec", fleet)


def _split(spec: Any) -> bool:
    return spec.serving is not None and spec.serving.mode == "PrefillDecode"


def _engines(engines: Sequence[Any], split: bool, base: str, fleet: Classes) -> Iterator[Problem]:
    for engine_index, engine in enumerate(engines):
        path = f"{base}.engines[{engine_index}]"
        yield from _parallelism(engine, path, fleet)
        communicates = split or any(member.role == constants.WORKER for member in engine.members)
        for index, member in enumerate(engine.members):
            member_path = f"{path}.members[{index}]"
            if communicates:
                yield from _libraries(member, member_path, fleet)
            yield from _alignment(member, member_path, fleet)


def _requests(member: Any) -> Sequence[Any]:
    """Return the device requests of a member of a deployment or of a replica."""
    if hasattr(member, "node_selector"):
        return member.node_selector.devices if member.node_selector else ()
    return member.device_requests or ()


def _constraints(member: Any) -> Sequence[Any]:
    if hasattr(member, "node_selector"):
        return (member.node_selector.constraints if member.node_selector else None) or ()
    return member.device_constraints or ()


def _sure_domains(request: Any) -> set[str]:
    """Return the domains that all devices matched by the request have."""
    expressions = [selector.cel for selector in request.selectors or () if selector.cel]
    return {
        domain
        for expression in expressions
        if not _UNSURE.search(expression)
        for domain in named_domains(expression)
        if domain != "resource.kubernetes.io"
    }


def _kind(request: Any) -> Kind:
    """Return the kind of device that a request is for; "" when its selectors do not determine it."""
    return _kind_of(_sure_domains(request))


def _kind_of(domains: set[str]) -> Kind:
    if domains and all(domain.startswith("gpu.") for domain in domains):
        return "gpu"
    if domains == {FABRIC_DRIVER}:
        return "fabric"
    if domains and all(_NETWORK_LABELS.intersection(domain.split(".")) for domain in domains):
        return "network"
    return ""


# --- parallelism ---


class _Claim(NamedTuple):
    """GPUs that all pods of an engine claim; no more than these, when it is not exact."""

    pods: int
    gpus: int
    is_exact: bool


def _parallelism(engine: Any, path: str, fleet: Classes) -> Iterator[Problem]:
    """Compare the parallelism of an engine with the GPUs that its pods claim."""
    index = [member.role != constants.WORKER for member in engine.members].index(True)
    container = engine.members[index].template.spec.containers[0]
    started = parallelism(CommandLine.of(container))
    claim = _claim(engine, fleet) if started else None
    if started is None or claim is None or started.devices == claim.gpus:
        return
    if started.devices < claim.gpus and not claim.is_exact:
        return
    what = "GPUs" if claim.is_exact else "devices"
    pods = f"pod that claims {what} has" if claim.pods == 1 else f"{claim.pods} pods that claim {what} have"
    why = "" if started.axes else ", as no flag sets its parallelism"
    message = f"uses {count(started.devices, 'GPU')}{why}, but the {pods} {claim.gpus} (engine {engine.name})"
    location = f"{path}.members[{index}].template.spec.containers[0].{started.field}"
    yield warning(message, location, _fitting(started, claim), str(started))


def _claim(engine: Any, fleet: Classes) -> _Claim | None:
    """Return the claim of the pods of an engine; None without a claim, and if the claim cannot be determined.

    Devices of an unknown kind may be GPUs where all classes have no others than GPUs and network cards."""
    devices = [device for inference_class in fleet.of_kind("InferenceClass") for device in inference_class.spec.devices]
    if fleet.unknown("InferenceClass") or any(
        device.claim == "Synthetic" and device.driver.startswith("gpu.") for device in devices
    ):
        return None
    pods = gpus = 0
    is_exact = True
    for member in engine.members:
        kinds = [(_kind(request), request.count) for request in _requests(member)]
        is_exact = is_exact and all(kind for kind, __ in kinds)
        if gpus_per_pod := sum(number for kind, number in kinds if kind in ("gpu", "")):
            nodes = member.worker.nodes if member.worker else 1
            pods, gpus = pods + nodes, gpus + nodes * gpus_per_pod
    is_known = is_exact or (bool(devices) and all(_kind_of({device.driver}) for device in devices))
    return _Claim(pods, gpus, is_exact) if gpus and is_known else None


def _fitting(started: Parallelism, claim: _Claim) -> str:
    """Return the hint for making both numbers equal."""
    other_axes = started.devices // started.axes.get(TENSOR, 1)
    tensor = f"{started.flags[TENSOR]}={claim.gpus // other_axes}" if claim.gpus % other_axes == 0 else ""
    devices = f"count: {started.devices // claim.pods} in its devices" if started.devices % claim.pods == 0 else ""
    options = " or ".join(filter(None, (tensor, devices)))
    return f"Set {options}" if options else "Set axes whose product is the number of GPUs that all pods claim"


# --- libraries of a fabric ---


def _libraries(member: Any, path: str, fleet: Classes) -> Iterator[Problem]:
    """Pods that talk over the fabric of a cloud need its libraries in their image."""
    container = member.template.spec.containers[0]
    if not _is_stock(container.image):
        return
    command_line = [*(container.command or ()), *(container.args or ())]
    for fabric in _FABRICS:
        if not any(_is_of(fabric, request, fleet) for request in _requests(member)):
            continue
        if any(fabric.pattern.search(text) for text in command_line):
            continue
        message = f"has no libraries for {fabric.type} ({fabric.libraries}), so the pods will use TCP"
        hint = f"Use an image that has them, such as {fabric.images}"
        yield warning(message, f"{path}.template.spec.containers[0].image", hint, short(container.image))


def _is_stock(image: str) -> bool:
    for registry in _DOCKER_HUB:
        image = image.removeprefix(registry)
    name = image.partition("@")[0]
    head, slash, tail = name.rpartition("/")
    return f"{head}{slash}{tail.partition(':')[0]}" in _STOCK_IMAGES


def _is_of(fabric: Fabric, request: Any, fleet: Classes) -> bool:
    if _kind(request) == "fabric":
        return any(f'"{fabric.type}"' in (selector.cel or "") for selector in request.selectors or ())
    class_name = getattr(request, "device_class_name", None)
    if class_name is not None:
        return bool(class_name == fabric.device_class)
    if _kind(request) != "network" or not fleet.complete("InferenceClass"):
        return False
    domains = _sure_domains(request)
    device_classes = {
        device.device_class_name
        for inference_class in fleet.of_kind("InferenceClass")
        for device in inference_class.spec.devices
        if device.driver in domains
    }
    return device_classes == {fabric.device_class}


# --- alignment ---


def _alignment(member: Any, path: str, fleet: Classes) -> Iterator[Problem]:
    """Warn of a claim for some of a node's GPUs and network cards that does not align them."""
    requests = _requests(member)
    gpus = [request for request in requests if _kind(request) == "gpu"]
    cards = [request for request in requests if _kind(request) == "network"]
    if not gpus or not cards or not fleet.complete("InferenceClass"):
        return
    joined = [constraint.requests for constraint in _constraints(member)]
    if any(not names or (_named(gpus, names) and _named(cards, names)) for names in joined):
        return
    nodes = [
        node
        for inference_class in fleet.of_kind("InferenceClass")
        if (node := (_available(inference_class, gpus), _available(inference_class, cards)))
        if node[0] >= _requested(gpus) and node[1] >= _requested(cards)
    ]
    if not nodes or any(node[0] == _requested(gpus) or node[1] == _requested(cards) for node in nodes):
        return
    message = (
        f"claims {_requested(gpus)} of {_of([node[0] for node in nodes])} GPUs of a node and {_requested(cards)} of "
        f"{_of([node[1] for node in nodes])} network cards, which may be on different PCIe roots"
    )
    pair = f"{gpus[0].name}, {cards[0].name}"
    constraint = f"constraints: [{{requests: [{pair}], matchAttribute: resource.kubernetes.io/pcieRoot}}]"
    hint = f"Add {constraint} beside devices"
    if _requested(gpus) > 1:
        hint = f"Request each GPU and its cards separately, each with {constraint}, or claim a whole node"
    field = "nodeSelector" if hasattr(member, "node_selector") else "deviceRequests"
    yield warning(message, f"{path}.{field}", hint)


def _named(requests: Iterable[Any], names: Sequence[str]) -> bool:
    return any(request.name in names for request in requests)


def _requested(requests: Iterable[Any]) -> int:
    return sum(request.count for request in requests)


def _available(inference_class: Any, requests: Sequence[Any]) -> int:
    """Return the number of claimable devices of the requested drivers on a node of a class."""
    drivers = {domain for request in requests for domain in _sure_domains(request)}
    return sum(
        device.count for device in inference_class.spec.devices if device.claim == "DRA" and device.driver in drivers
    )


def _of(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
