# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a ModelEndpoint: the route from the control gateway to its backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import api, names
from ..api.model_endpoint import EndpointRouting, ModelEndpointStatus
from ..compose.workload_cluster import WORKLOADS
from ..secrets import masked
from ..text import cut
from ..wire import Object, Objects, entries, number, stated, text
from .conditions import Condition, Status, earlier, hold, ready, unknown
from .workloads import any_availability, pod_failures

_ROUTING = "RoutingReady"
_REQUIRED = frozenset({"Service", "EndpointSlice", "BackendTLSPolicy", *WORKLOADS})
"""Kinds of objects that requests require."""


def model_endpoint(
    endpoint: api.ModelEndpoint,
    desired: Sequence[Object],
    control: Objects | None,
    finding: str = "",
    *,
    waiting: str = "",
    has_path: bool = True,
    is_selected: bool = True,
    previous: Mapping[str, Any] | None = None,
) -> Status[ModelEndpointStatus]:
    """Return the status of a ModelEndpoint that is composed into `desired` on the control cluster.

    `control`: observed objects of the control cluster, None without an observation. `finding`: error of the URL.
    `waiting`: a missing requirement, such as a Secret that does not exist. `has_path`: False if all gateways are Model
    gateways. They require no object on the control cluster. `is_selected`: a service of a Model gateway selects the
    endpoint.
    """
    previous_status = earlier(endpoint.status, previous)
    nothing = api.construct(ModelEndpointStatus)
    if not has_path:
        desired, control = (), control or Objects()
    service = next((text(value, "metadata", "name") for value in desired if value["kind"] == "Service"), "")
    routing = nothing
    if service:
        routing = api.construct(ModelEndpointStatus, routing=api.construct(EndpointRouting, backend_name=service))
    if finding:
        spec = endpoint.spec
        message = f"Invalid spec.{spec.backend_field}: {masked(spec.backend_url)}: {finding}"
        return Status(
            (Condition(_ROUTING, "False", "InvalidURL", message), ready(False, previous_status, message)), nothing
        )
    if control is None and not waiting:
        message = "the control cluster has not been observed"
        held_conditions = tuple(hold(kind, previous_status, unknown(kind, message)) for kind in (_ROUTING, "Ready"))
        return Status(held_conditions, routing if held_conditions[0].status == "True" else nothing)
    missing = [waiting] if waiting else _missing(desired, control or Objects()) if has_path else []
    if missing:
        message = "; ".join(missing)
        conditions = (
            Condition(_ROUTING, "False", "WaitingForBackend", message),
            ready(False, previous_status, message),
        )
        return Status(conditions, nothing)
    message = (
        "" if has_path or is_selected else "No ModelService on an InferenceGateway selects it, so it gets no requests"
    )
    return Status((Condition(_ROUTING, "True", "BackendConfigured", message), ready(True, previous_status)), routing)


def _missing(desired: Sequence[Object], control: Objects) -> list[str]:
    required_objects = [value for value in desired if value["kind"] in _REQUIRED]
    if not required_objects:
        return ["its objects are not composed yet"]
    return sorted(message for value in required_objects if (message := _finding(value, control)))


def _finding(desired: Object, control: Objects) -> str:
    observed = control.like(desired)
    name = f"{desired['kind']} {desired['metadata']['name']}"
    if observed is None:
        return f"{name} does not exist yet"
    if desired["kind"] in WORKLOADS:
        message = any_availability(desired, observed).message
        metadata = desired["metadata"]
        label = text(metadata, "labels", names.ENDPOINT_LABEL)
        pods = control.labelled("Pod", text(metadata, "namespace"), names.ENDPOINT_LABEL, label) if message else ()
        return "; ".join(sentence for sentence in (message, pod_failures(pods)) if sentence)
    for ancestor in entries(observed, "status", "ancestors"):
        conditions = entries(ancestor, "conditions")
        if stated(conditions, "Accepted", number(observed, "metadata", "generation")) == "False":
            messages = sorted({text(entry, "message") for entry in conditions if entry.get("type") == "Accepted"})
            return f"{name} was rejected by the gateway: {cut('; '.join(messages))}"
    return ""
