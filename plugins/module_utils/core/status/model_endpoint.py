# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The status of a ModelEndpoint: whether the control gateway can reach its backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import WORKLOADS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.secrets import masked
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    Condition,
    Status,
    cut,
    earlier,
    hold,
    ready,
    unknown,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import (
    any_availability,
    pod_failures,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Object,
    Objects,
    entries,
    number,
    stated,
    text,
)

_ROUTING = "RoutingReady"
_ON_THE_WAY = frozenset({"Service", "EndpointSlice", "BackendTLSPolicy", *WORKLOADS})
"""The kinds without which no request arrives; the others only go with them."""


def model_endpoint(
    endpoint: Object,
    wanted: Sequence[Object],
    control: Objects | None,
    fault: str = "",
    *,
    waiting: str = "",
    previous: Mapping[str, Any] | None = None,
) -> Status:
    """The status of a ModelEndpoint (wire form) that is composed into `wanted` on the control cluster.

    `control` is what was seen there, None when nobody looked. `fault` says what is wrong with its URL, `waiting` what
    else it needs, such as a Secret that is not there.
    """
    before = earlier(endpoint, previous)
    service = next((text(value, "metadata", "name") for value in wanted if value["kind"] == "Service"), "")
    routing = {"routing": {"backendName": service}} if service else {}
    if fault:
        message = f"Invalid spec.url: {masked(text(endpoint, 'spec', 'url'))}: {fault}"
        return Status((Condition(_ROUTING, "False", "InvalidURL", message), ready(False, before, message)))
    if control is None and not waiting:
        message = "the control cluster has not been observed"
        kept = tuple(hold(kind, before, unknown(kind, message)) for kind in (_ROUTING, "Ready"))
        return Status(kept, routing if kept[0].status == "True" else {})
    missing = [waiting] if waiting else _missing(wanted, control or Objects())
    if missing:
        message = "; ".join(missing)
        return Status((Condition(_ROUTING, "False", "WaitingForBackend", message), ready(False, before, message)))
    return Status((Condition(_ROUTING, "True", "BackendConfigured"), ready(True, before)), routing)


def _missing(wanted: Sequence[Object], control: Objects) -> list[str]:
    needed = [value for value in wanted if value["kind"] in _ON_THE_WAY]
    if not needed:
        return ["nothing is composed for it yet"]
    return sorted(message for value in needed if (message := _fault(value, control)))


def _fault(wanted: Object, control: Objects) -> str:
    seen = control.like(wanted)
    name = f"{wanted['kind']} {wanted['metadata']['name']}"
    if seen is None:
        return f"{name} is not there yet"
    if wanted["kind"] in WORKLOADS:
        message = any_availability(wanted, seen).message
        metadata = wanted["metadata"]
        label = text(metadata, "labels", names.ENDPOINT_LABEL)
        pods = control.labelled("Pod", text(metadata, "namespace"), names.ENDPOINT_LABEL, label) if message else ()
        return "; ".join(part for part in (message, pod_failures(pods)) if part)
    for ancestor in entries(seen, "status", "ancestors"):
        conditions = entries(ancestor, "conditions")
        if stated(conditions, "Accepted", number(seen, "metadata", "generation")) == "False":
            said = sorted({text(entry, "message") for entry in conditions if entry.get("type") == "Accepted"})
            return f"{name} was refused by the gateway: {cut('; '.join(said))}"
    return ""
