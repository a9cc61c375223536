# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Mutual TLS between Model gateways and inference clusters.

An inference cluster has an ingress gateway for this purpose. The ingress gateway signs its own certificate, and
requires a client certificate from the CA of a Model gateway. Model gateways use an internal name of the ingress
gateway, and a Service on their cluster resolves the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from ... import api, names
from ...wire import Object
from .. import constants
from ..control import control_labels
from ..endpoint_slices import manual_slice
from ..endpoint_url import AddressType
from . import parts
from .gateway import gateway_metadata

PORT = 443
_NAME = constants.CLUSTER_GATEWAY
_CLIENTS = f"{_NAME}-clients"
_PLAIN = {"name": parts.HTTP, "protocol": "HTTP", "port": 80}


@dataclass(frozen=True)
class ClusterGateway:
    """Connection of Model gateways to an inference cluster: its internal name, its address, and its CA (PEM).

    Each field is "" while it is unknown.
    """

    cluster: str
    hostname: str = ""
    address: str = ""
    certificate: str = ""

    @property
    def problem(self) -> str:
        """Reason why no gateway can use the cluster; "" without a problem."""
        if not self.hostname:
            return f"cluster {self.cluster} has no hostname for gateways in mode Model yet"
        if not self.certificate:
            return f"the CA certificate of the gateway of cluster {self.cluster} is not known yet"
        if not self.address:
            return f"the gateway of cluster {self.cluster} has no address yet"
        return ""


def service_address(address: str) -> str:
    """Return an address in the format of a Service: an IP address, or a DNS name in lower case without a trailing dot.

    The result is "" for anything else, such as an address with a port. Clusters reject such an address.
    """
    name = address.removesuffix(".").lower()
    try:
        ip = ip_address(name)
    except ValueError:
        *__, top_level = labels = name.split(".")
        is_name = len(name) <= 253 and all(map(names.is_dns_label, labels)) and not top_level.isdigit()
        return name if is_name else ""
    # API servers refuse these as endpoints of Services; "%" begins a zone of IPv6 addresses.
    is_of_machine = ip.is_loopback or ip.is_link_local or ip.is_unspecified or "%" in name
    return "" if is_of_machine or ip.is_multicast else name


def internal_hostname(cluster: str) -> str:
    """Return the host name of a cluster for Model gateways: the name of a Service on the gateway's cluster."""
    return f"{_service_name(cluster)}.{constants.SYSTEM_NAMESPACE}.svc.cluster.local"


def _service_name(cluster: str) -> str:
    # Names of Services have no dots. The hash is of the name with them, so that eu.west and eu-west have two.
    return names.child_name("cluster", cluster).replace(".", "-")


def cluster_service_objects(gateway: api.InferenceGateway, cluster_gateway: ClusterGateway) -> tuple[Object, ...]:
    """Return the objects on a gateway's cluster that resolve the name of an inference cluster to its address."""
    metadata = gateway_metadata(gateway, _service_name(cluster_gateway.cluster), cluster=cluster_gateway.cluster)
    service: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    try:
        version = ip_address(cluster_gateway.address).version
    except ValueError:
        return ({**service, "spec": {"type": "ExternalName", "externalName": cluster_gateway.address}},)
    family: AddressType = "IPv4" if version == 4 else "IPv6"
    # The Service has no cluster IP address, so that its name resolves to the address of the inference cluster.
    spec = {"clusterIP": "None", "ports": [{"port": PORT, "protocol": "TCP"}]}
    if version == 6:
        spec |= {"ipFamilies": [family], "ipFamilyPolicy": "SingleStack"}
    return {**service, "spec": spec}, manual_slice(metadata, family, PORT, [cluster_gateway.address])


def cluster_gateway_objects(
    cluster: api.InferenceCluster, clients: Mapping[str, str], *, plain: bool, hosts_gateway: bool
) -> tuple[Object, ...]:
    """Return the objects of an inference cluster for Model gateways.

    `clients`: the CAs (PEM) of the Model gateways, by name. Nothing listens while no CA is known.
    `plain`: also listen on port 80, for path-based gateways, on a cluster without another gateway for them.
    `hosts_gateway`: True if the cluster has a Model gateway. The ingress gateway might have to read its requests again
    (`overflow.py`).
    """
    certificates = [
        parts.self_signed(_metadata(cluster, f"{_NAME}-selfsigned")),
        parts.authority(
            _metadata(cluster, constants.CLUSTER_GATEWAY_CA), f"{_NAME}-{cluster.name}", f"{_NAME}-selfsigned"
        ),
        parts.issuer("Issuer", _metadata(cluster, constants.CLUSTER_GATEWAY_CA), constants.CLUSTER_GATEWAY_CA),
        parts.certificate(
            _metadata(cluster, _NAME),
            "Issuer",
            constants.CLUSTER_GATEWAY_CA,
            dnsNames=[internal_hostname(cluster.name)],
            usages=["server auth", "digital signature", "key encipherment"],
        ),
        parts.bundle(_metadata(cluster, constants.CLUSTER_GATEWAY_CA, "")),
    ]
    listeners = [*([_PLAIN] if plain else ()), *([parts.https_listener(_NAME)] if clients else ())]
    if not listeners:
        return tuple(certificates)
    listening = [
        parts.gateway(_metadata(cluster, _NAME), *listeners),
        parts.envoy_object(
            "BackendTrafficPolicy",
            _metadata(cluster, _NAME),
            {
                "targetRefs": [parts.named("Gateway", _NAME, constants.GATEWAY_GROUP)],
                "tcpKeepalive": constants.TCP_KEEPALIVE,
                "dns": constants.DNS,
            },
        ),
        *(_admission(cluster, clients, hosts_gateway=hosts_gateway) if clients else ()),
    ]
    return *certificates, *listening


def _admission(cluster: api.InferenceCluster, clients: Mapping[str, str], *, hosts_gateway: bool) -> Sequence[Object]:
    """Return the policy that rejects connections without a certificate of one of the clients' CAs."""
    target = {**parts.named("Gateway", _NAME, constants.GATEWAY_GROUP), "sectionName": parts.HTTPS}
    authorities = "".join(f"{clients[name].strip()}\n" for name in sorted(clients))
    validation = {"optional": False, "caCertificateRefs": [parts.named("ConfigMap", _CLIENTS)]}
    # The AI gateway keeps the path of the first gateway, and reads bodies by it: those of another schema here.
    read_again = (
        {"headers": {"earlyRequestHeaders": {"remove": list(constants.KNOWN_AGAIN_HEADERS)}}} if hosts_gateway else {}
    )
    return (
        parts.config_map(_metadata(cluster, _CLIENTS), authorities),
        parts.envoy_object(
            "ClientTrafficPolicy",
            _metadata(cluster, _CLIENTS),
            {"targetRefs": [target], "tls": {"clientValidation": validation}, **read_again, **parts.buffers()},
        ),
    )


def attached(route: Object, *, alone: bool) -> Object:
    """Return the HTTPRoute of a replica, attached to the ingress gateway too, or only to the ingress gateway (`alone`).

    A cluster that hosts a Model gateway has no separate workload gateway. Without a path-based gateway that sends
    requests, the route must not bypass API keys and policies, because the workload gateway requires no authentication.
    """
    parents = [] if alone else route["spec"]["parentRefs"]
    parent = {"name": _NAME, "namespace": constants.SYSTEM_NAMESPACE}
    return {**route, "spec": {**route["spec"], "parentRefs": [*parents, parent]}}


def _metadata(cluster: api.InferenceCluster, name: str, namespace: str = constants.SYSTEM_NAMESPACE) -> dict[str, Any]:
    labels = control_labels(cluster, names.CLUSTER_LABEL)
    return {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels}
