# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EndpointSlices of Services without pods as backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import names
from .endpoint_url import AddressType


def manual_slice(
    service_metadata: Mapping[str, Any], address_type: AddressType, port: int, addresses: Sequence[str]
) -> dict[str, Any]:
    """Return the EndpointSlice of a Service without selector and with one unnamed port.

    It is named like the Service, with its address type unless that is IPv4, because the type is immutable.

    `ready` is explicit: gateways skip an endpoint of unknown readiness. The managed-by label keeps the controllers of
    Kubernetes away from the slice (Kubernetes documentation, "EndpointSlices").
    """
    labels = {
        **service_metadata["labels"],
        "kubernetes.io/service-name": service_metadata["name"],
        "endpointslice.kubernetes.io/managed-by": names.MANAGED_BY,
    }
    name = service_metadata["name"]
    if address_type != "IPv4":
        name = names.child_name(name, address_type.lower())
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**service_metadata, "name": name, "labels": labels},
        "addressType": address_type,
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }
