# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Controllers of what gateways in mode Model are made of, for clusters that have none: they say and make what
cert-manager, trust-manager and the AI gateway say and make, as far as the fleet reads it. Keys are texts here."""

from __future__ import annotations

import base64
from typing import Any

from ansible_collections.modelplane.fleet.tests.e2e.gateways import GATEWAY, GatewayController
from ansible_collections.modelplane.fleet.tests.kube.client import Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

AI = "aigateway.envoyproxy.io/v1beta1"
CERTIFICATES = "cert-manager.io/v1"
TRUST = "trust.cert-manager.io/v1alpha1"
CERTIFICATE_KINDS = ((CERTIFICATES, "Certificate"), (TRUST, "Bundle"))
AI_KINDS = ((AI, "AIGatewayRoute"),)
PRIVATE_KEY = "qCzPlantedPrivateKey93"
"""In the key of every certificate."""

_SYSTEM = "modelplane-system"
_SINCE = "2026-01-01T00:00:00Z"

Object = dict[str, Any]


class ModelGatewayController(GatewayController):
    """Issues certificates, copies CAs into ConfigMaps, and accepts routes of models, on one cluster."""

    def __init__(self, plane: ControlPlane, kinds: tuple[tuple[str, str], ...]) -> None:
        super().__init__(plane, "", kinds)
        self._name = plane.name

    def _act(self, objects: Objects, value: Object) -> bool:
        done = {"Certificate": self._issue, "Bundle": self._copy, "AIGatewayRoute": self._route}[value["kind"]](
            objects, value
        )
        condition = {"AIGatewayRoute": "Accepted", "Bundle": "Synced", "Certificate": "Ready"}[value["kind"]]
        status = {"conditions": [{"type": condition, "status": str(done), "reason": "Test", "message": "of a test"}]}
        for each in status["conditions"]:
            each["lastTransitionTime"] = _SINCE
            if value["kind"] != "AIGatewayRoute":
                each["observedGeneration"] = value["metadata"]["generation"]
        if status != value.get("status"):
            metadata = value["metadata"]
            objects.patch(
                value["apiVersion"],
                value["kind"],
                metadata["name"],
                {"status": status},
                metadata.get("namespace", ""),
                subresource="status",
            )
        return done

    def _issue(self, objects: Objects, value: Object) -> bool:
        spec, metadata = value["spec"], value["metadata"]
        if (
            "ca" in spec["issuerRef"]["name"]
            and objects.get("v1", "Secret", spec["issuerRef"]["name"], _SYSTEM) is None
        ):
            return False
        data = {"tls.crt": "certificate", "tls.key": PRIVATE_KEY, "ca.crt": authority(self._name, metadata["name"])}
        annotations = {"cert-manager.io/certificate-name": metadata["name"]}
        labels = spec.get("secretTemplate", {}).get("labels", {})
        objects.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": spec["secretName"],
                    "namespace": metadata["namespace"],
                    "annotations": annotations,
                    "labels": labels,
                },
                "type": "kubernetes.io/tls",
                "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
            }
        )
        return True

    def _copy(self, objects: Objects, value: Object) -> bool:
        (source,) = value["spec"]["sources"]
        secret = objects.get("v1", "Secret", source["secret"]["name"], _SYSTEM)
        if secret is None:
            return False
        key = source["secret"]["key"]
        owner = {each: value[each] for each in ("apiVersion", "kind")}
        objects.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": value["metadata"]["name"],
                    "namespace": _SYSTEM,
                    "ownerReferences": [{**owner, **{each: value["metadata"][each] for each in ("name", "uid")}}],
                },
                "data": {key: base64.b64decode(secret["data"][key]).decode()},
            }
        )
        return True

    def _route(self, objects: Objects, value: Object) -> bool:
        """Make the HTTPRoute that the AI gateway makes of a route, whose other references have to be there."""
        metadata = value["metadata"]
        names = [each["name"] for rule in value["spec"]["rules"] for each in rule["backendRefs"]]
        if any(objects.get(AI, "AIServiceBackend", name, metadata["namespace"]) is None for name in names):
            return False
        owner = {each: value[each] for each in ("apiVersion", "kind")}
        backend = {"group": "gateway.envoyproxy.io", "kind": "Backend"}
        rules = [
            [{**backend, "name": each["name"], "weight": each.get("weight", 1)} for each in rule["backendRefs"]]
            for rule in value["spec"]["rules"]
        ]
        objects.apply(
            {
                "apiVersion": GATEWAY,
                "kind": "HTTPRoute",
                "metadata": {
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "ownerReferences": [{**owner, **{each: metadata[each] for each in ("name", "uid")}}],
                },
                "spec": {
                    "parentRefs": value["spec"]["parentRefs"],
                    "rules": [{"backendRefs": references} for references in rules],
                },
            }
        )
        return True


def authority(cluster: str, name: str) -> str:
    """Return the certificate of the CA that a Certificate of a cluster has."""
    content = f"{cluster} {name}".encode()
    text = base64.b64encode(bytes([0x30, len(content)]) + content).decode()
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"
