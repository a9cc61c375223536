# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet as `build` composes it, applied to the equipment: `ComposedFleet`.

The control cluster and the cluster `hub` are one API server here, as none of their objects have names in common.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.callers import KeySecret
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.mtls import internal_hostname
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import expected
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Options, apply
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_budgets import observe_budgets
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_copies import Sources, copies
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import Build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings
from ansible_collections.modelplane.fleet.tests.kube.client import Object, documents
from ansible_collections.modelplane.fleet.tests.traffic.certificates import Authority
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import manifests as rights

from .equipment import GatewayCluster

MANIFESTS = Path(__file__).with_name("fleet")
_STACK = Path(__file__).parents[2] / "roles/serving_stack/defaults/main.yml"
HUB = "hub"
SYSTEM = names.SYSTEM_NAMESPACE
TEAM = names.workload_namespace("ml-team")
RUNS = 6
CERTIFICATES = {"Issuer", "ClusterIssuer", "Certificate", "Bundle"}
"""Kinds of cert-manager and trust-manager, which are not here: `certify` makes the Secrets that they would."""
ENGINES = {
    "Deployment",
    "ResourceClaimTemplate",
    "InferencePool",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "NetworkPolicy",
}
"""Kinds of a replica's engine and its endpoint picker, in whose place a double answers."""


class ComposedFleet:
    """The fleet of the manifests in fleet/, with objects of its own on the control cluster (Secrets with keys).

    `resources` are the manifests, which may be changed between one `install` and the next.
    """

    def __init__(self, cluster: GatewayCluster, folder: Path) -> None:
        self.cluster = cluster
        self.resources = documents(MANIFESTS)
        self.folder = folder / "build"
        self.prices = ""
        """File with a price catalog, if any."""
        self._manifests = folder / "manifests"
        self.built: list[Object] = []
        self.clients, self.servers = (Authority(name, folder) for name in ("clients", "servers"))
        for each in (self.folder, self._manifests):
            each.mkdir()

    def resource(self, kind: str, name: str) -> dict[str, Any]:
        """The manifest of a resource."""
        [found] = [each for each in self.resources if each["kind"] == kind and each["metadata"]["name"] == name]
        return found

    def build(self) -> None:
        """Build; `built` are the objects for the cluster."""
        text = "---\n".join(f"{json.dumps(each)}\n" for each in self.resources)
        (self._manifests / "fleet.yaml").write_text(text, encoding="utf-8")
        build(Settings((str(self._manifests),), str(self.folder), prices=self.prices))
        self.built = Build(str(self.folder)).objects(HUB)

    def install(self) -> None:
        """Build, and apply the objects as a run does. Raise AssertionError if no run succeeds.

        A failed run is repeated, as its messages ask for: controllers can need longer than one run waits for them.
        """
        self.build()
        self.cluster.apply([each for each in self.built if each["kind"] == "Namespace"])
        self.certify()
        left_out = CERTIFICATES | ENGINES
        objects = [self._double(each) for each in self.built if each["kind"] not in left_out]
        with connect(Connection(HUB, kubeconfig=str(self.cluster.cluster.kubeconfig)), write_cache=False) as client:
            for _run in range(RUNS):
                done = apply(client, [*objects, *self.copied(client)], Options())
                if not done.failed:
                    break
        assert not done.failed, [f"{each.key}: {each.message}" for each in done.results if each.action == "failed"]

    def copied(self, control: Client) -> Sequence[Object]:
        """Return the copies of Secrets that the plan names."""
        found = copies(Build(str(self.folder)).secret_copies(), HUB, Sources(control))
        assert not found.notes, found.notes
        return found.desired

    def certify(self) -> None:
        """Write the Secret of each Certificate that has none yet, as cert-manager does."""
        for each in self.built:
            place = each["metadata"].get("namespace", "")
            if each["kind"] == "Certificate" and not each["spec"].get("isCA"):
                name = each["spec"]["secretName"]
                if self.cluster.cluster.get("v1", "Secret", name, place) is None:
                    self.renew(each)

    def renew(self, certificate: Object) -> str:
        """Issue a Certificate again and write its Secret; the certificate (PEM)."""
        spec = certificate["spec"]
        is_server = "server auth" in spec["usages"]
        authority = self.servers if is_server else self.clients
        files = authority.issue(spec["dnsNames"][0] if is_server else spec["commonName"])
        issued, key = (Path(each).read_text(encoding="utf-8") for each in files)
        data = {"tls.crt": issued, "tls.key": key, "ca.crt": authority.pem}
        metadata = {"name": spec["secretName"], "namespace": certificate["metadata"]["namespace"]}
        self.cluster.apply(secret(metadata, data, "kubernetes.io/tls"))
        return issued

    def know_clients(self) -> None:
        """Let the fleet know the authority of the gateway's certificates."""
        self.resource("InferenceGateway", "eu")["status"] = {"clientCACertificate": self.clients.pem}

    def know_cluster(self, address: str) -> None:
        """Let the fleet know the gateway of the cluster."""
        known = {"hostname": internal_hostname(HUB), "address": address, "caCertificate": self.servers.pem}
        self.resource("InferenceCluster", HUB)["status"] = {"gateway": known}

    @staticmethod
    def _double(value: Object) -> Object:
        """The route of a replica, to the double in place of its InferencePool."""
        if value["kind"] != "HTTPRoute" or names.REPLICA_LABEL not in value["metadata"]["labels"]:
            return value
        rules = [{**rule, "backendRefs": [{"name": "engine", "port": 8000}]} for rule in value["spec"]["rules"]]
        return {**value, "spec": {**value["spec"], "rules": rules}}


class UseOfBudgets:
    """Reader of the use of budgets on the cluster, as of a run: with the rights of the fleet. `callers` have keys."""

    def __init__(self, fleet: ComposedFleet, callers: Sequence[str]) -> None:
        self._cluster = fleet.cluster
        plane = fleet.cluster.cluster
        keys = KeySecret({"modelplane.ai/keys": "eu"}, tuple(callers))
        self._callers = expected(fleet.resources, [keys]).cluster(HUB).callers
        plane.apply([each for each in rights("workload-cluster") if each["kind"] == "ClusterRole"])
        self._kubeconfig = plane.user_kubeconfig("fleet", cluster_role="modelplane-workload-cluster")

    def __call__(self) -> dict[str, Mapping[str, int] | str]:
        """The use of each budget, or why it is not known, by policy and name."""
        with connect(Connection(HUB, kubeconfig=str(self._kubeconfig))) as client:
            found = observe_budgets(client, self._callers)
        assert {each.namespace for each in found} == {"ml-team"}
        return {f"{each.policy} {each.name}": each.problem or each.used for each in found}

    def install(self) -> None:
        """Apply the Service by which the serving stack leads to the rate limit service."""
        components = yaml.safe_load(_STACK.read_text(encoding="utf-8"))["serving_stack_components"]
        [component] = [each for each in components if each["key"] == "budget-use"]
        self._cluster.apply(component["objects"])


def secret(metadata: Mapping[str, Any], data: Mapping[str, str], kind: str = "Opaque") -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": dict(metadata), "type": kind, "data": encoded}


def engine_service(address: str) -> list[Object]:
    """The Service of an engine's double, for the routes of replicas."""
    metadata = {"name": "engine", "namespace": TEAM}
    port = {"name": "http", "port": 8000}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"clusterIP": "None", "ports": [port]}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**metadata, "labels": {"kubernetes.io/service-name": "engine"}},
            "addressType": "IPv4",
            "ports": [port],
            "endpoints": [{"addresses": [address]}],
        },
    ]
