# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The gateway of a bare control cluster, with a real Helm and charts that stand in for the real ones."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import ROOT, SYSTEM, LiveFleet, Run, until
from ansible_collections.modelplane.fleet.tests.kube.client import PASSING, Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import TESTS, ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.stack.programs import Helm, helm
from ansible_collections.modelplane.fleet.tests.stack.sources import VERSION_ANNOTATION, pack
from kubernetes.dynamic.exceptions import ResourceNotFoundError

GATEWAY = "gateway.networking.k8s.io/v1"
METALLB = "metallb.io/v1beta1"
DEFINITION = "apiextensions.k8s.io/v1"
POOL = "198.51.100.10-198.51.100.20"
ADDRESS = "198.51.100.10"
NODE_ADDRESS = "2001:db8::7"
ON_METAL = f"{{version: 40.2.0, loadBalancer: MetalLB, metallb: {{addressPool: {POOL}}}}}"
ON_NODES = "{version: 40.2.0}"

Object = dict[str, Any]


@dataclass(frozen=True)
class OnlyControl:
    """A fleet of no workload clusters."""

    control: ControlPlane
    workloads: Mapping[str, ControlPlane] = field(default_factory=dict)


class Controllers:
    """Stand-in for the pods of MetalLB and Traefik: the first gives a load balancer an address of its pool, the other
    takes classes and Gateways as its own, and says the address that its Service has."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="MetalLB and Traefik", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        # A client of its own, as the cache of one is no place for two threads.
        kubeconfig = self._plane.folder / "controllers.kubeconfig"
        shutil.copy(self._plane.folder / f"{TESTS}.kubeconfig", kubeconfig)
        objects: Objects | None = None
        while not self._stopped.wait(0.5):
            with contextlib.suppress(*PASSING):
                objects = objects or Objects(kubeconfig)
                if not (objects.get("apps/v1", "Deployment", "mp-traefik", "traefik-system") or {}).get("status"):
                    continue
                self._balance(objects)
                for kind in ("GatewayClass", "Gateway"):
                    for value in objects.list(GATEWAY, kind):
                        self._take(objects, value)

    def _balance(self, objects: Objects) -> None:
        service = objects.get("v1", "Service", "traefik", "traefik-system") or {}
        desired = service.get("spec", {}).get("type") == "LoadBalancer"
        has = service.get("status", {}).get("loadBalancer", {}).get("ingress")
        with contextlib.suppress(ResourceNotFoundError):
            pools = objects.list(METALLB, "IPAddressPool") if desired and not has else []
            for pool in pools:
                first = pool["spec"]["addresses"][0].partition("-")[0]
                status = {"status": {"loadBalancer": {"ingress": [{"ip": first}]}}}
                objects.patch("v1", "Service", "traefik", status, "traefik-system", subresource="status")

    def _take(self, objects: Objects, value: Object) -> None:
        metadata, spec = value["metadata"], value["spec"]
        ours = spec.get("controllerName") == "traefik.io/gateway-controller" or spec.get("gatewayClassName")
        # Traefik has its entry point `web` there, and takes no listener on another port.
        if not ours or [each["port"] for each in spec.get("listeners", [{"port": 8000}])] != [8000]:
            return
        condition = {
            "type": "Accepted",
            "status": "True",
            "reason": "Accepted",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": metadata["generation"],
        }
        status: Object = {"conditions": [condition]}
        if value["kind"] == "Gateway":
            service = objects.get("v1", "Service", "traefik", "traefik-system") or {}
            ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or []
            status["addresses"] = [{"type": "IPAddress", "value": each["ip"]} for each in ingress]
        before = {key: part for key, part in value.get("status", {}).items() if key in status}
        if before != status:
            place = metadata.get("namespace", "")
            objects.patch(GATEWAY, value["kind"], metadata["name"], {"status": status}, place, subresource="status")


class Control:
    """The control cluster, and the playbook that installs its gateway there."""

    def __init__(self, live: LiveFleet, plane: ControlPlane, collections: Path) -> None:
        self.live = live
        self.plane = plane
        self._environment = {"ANSIBLE_COLLECTIONS_PATH": f"{ROOT / '.collections'}:{collections}"}

    def declare(self, traefik: str, **settings: Any) -> None:
        manifest = f"""
            apiVersion: {fleets.API}
            kind: InferenceGateway
            metadata: {{name: default}}
            spec: {{backend: Traefik, traefik: {traefik}}}
        """
        self.live.write("gateway.yaml", manifest)
        self.live.settings |= settings

    def run(self, *arguments: str, playbook: str = "control_plane") -> Run:
        return self.live.run(playbook, *arguments, **self._environment)

    def again(self) -> tuple[int, Sequence[Any]]:
        """Return what a run changes that has nothing to do, and what it writes."""
        since = self.plane.audit_position()
        changed = self.run().ok().changed
        # Webhooks are asked whether they answer, with what is not kept.
        writes = [each for each in self.plane.write_requests(since) if "dryRun=All" not in each.uri]
        return changed, [(each.verb, each.resource, each.name) for each in writes]

    def releases(self) -> set[str]:
        """The releases that Helm calls deployed."""
        command = Helm(3, self.live.folder / "helm")
        listed = json.loads(command("list", "-A", "-a", "-o", "json", "--kubeconfig", self.plane.kubeconfig))
        return {each["name"] for each in listed if each["status"] == "deployed"}

    def status(self) -> Object:
        status: Object = self.live.resource("InferenceGateway", "default").get("status") or {}
        return status

    def shown(self) -> str:
        """The column ADDRESS of `kubectl get ig`."""
        head, row = self.live.kubectl("get", "ig", "default").splitlines()
        start = head.index("ADDRESS")
        return row[start:].split(" ")[0]

    def there(self, api_version: str, kind: str, name: str, namespace: str = "") -> bool:
        return self.plane.objects.knows(api_version, kind) and bool(self.plane.get(api_version, kind, name, namespace))

    def gone(self, namespace: str) -> bool:
        found = self.plane.get("v1", "Namespace", namespace)
        return found is None or "deletionTimestamp" in found["metadata"]


@pytest.fixture(scope="module")
def control(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    try:
        program, collections = helm(3), packages.kubernetes_core()
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("control-gateway")
    with (
        ControlPlane(kubernetes_programs, "control", folder / "plane") as plane,
        LiveFleet(cast("Fleet", OnlyControl(plane)), folder / "fleet") as live,
    ):
        plane.add_nodes("system", 1)
        internal = {"status": {"addresses": [{"type": "InternalIP", "address": NODE_ADDRESS}]}}
        plane.objects.patch("v1", "Node", "system-0", internal, subresource="status")
        acting = Controllers(plane)
        pack(folder / "charts", only=["traefik", "metallb", "keda"])
        live.settings |= {
            "serving_stack_helm": str(program),
            "serving_stack_charts_dir": str(folder / "charts"),
            "serving_stack_charts_required": True,
            "control_plane_gateway_timeout": 120,
        }
        found = Control(live, plane, collections)
        found.declare(ON_METAL)
        yield found
        acting.stop()


def test_check_mode_lists_what_would_be_installed(control: Control) -> None:
    run = control.run("--check").ok()
    assert run.changed > 0
    for reported in ("install mp-traefik 40.2.0 into traefik-system", "install mp-metallb 0.14.9 into metallb-system"):
        assert reported in run.output
    assert control.releases() == set()
    assert control.gone(SYSTEM)
    assert not control.plane.objects.list(DEFINITION, "CustomResourceDefinition", labels="app.kubernetes.io/managed-by")


def test_the_gateway_is_there_and_its_address_is_reported(control: Control) -> None:
    control.run().ok()
    assert control.releases() == {"mp-traefik", "mp-metallb"}
    assert control.shown() == ADDRESS
    conditions = {each["type"]: each["status"] for each in control.status()["conditions"]}
    assert conditions == {"ControllerReady": "True", "Ready": "True"}
    pool = control.plane.get(METALLB, "IPAddressPool", "modelplane", "metallb-system") or {}
    assert pool["spec"]["addresses"] == [POOL]
    assert control.there(METALLB, "L2Advertisement", "modelplane", "metallb-system")
    namespace = control.plane.get("v1", "Namespace", "metallb-system") or {}
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_the_definitions_are_ours_and_not_those_of_the_chart(control: Control) -> None:
    definitions = control.plane.objects.list(DEFINITION, "CustomResourceDefinition")
    by_group: dict[str, list[Object]] = {}
    for each in definitions:
        by_group.setdefault(each["spec"]["group"], []).append(each["metadata"])
    ours = by_group["gateway.networking.k8s.io"]
    assert len(ours) == 8
    assert all(VERSION_ANNOTATION not in each["annotations"] for each in ours)
    assert all(VERSION_ANNOTATION in each["annotations"] for each in by_group["traefik.io"])
    assert len(by_group["traefik.io"]) == 10


def test_a_manifest_with_errors_leaves_it_as_it_is(control: Control) -> None:
    control.declare("{loadBalancer: Moon}")
    refused = control.run()
    assert refused.code != 0
    assert "Moon" in refused.output
    control.live.settings["fleet_invalid"] = "hold"
    assert control.again() == (0, [])
    assert control.releases() == {"mp-traefik", "mp-metallb"}
    assert control.shown() == ADDRESS
    del control.live.settings["fleet_invalid"]


def test_ports_of_nodes_lead_to_it_and_an_autoscaler_is_there_on_demand(control: Control) -> None:
    control.declare(
        ON_NODES,
        control_plane_gateway_service="NodePort",
        control_plane_gateway_node_port=30080,
        control_plane_gateway_states={"metallb": "disabled"},
    )
    control.run().ok()
    assert control.releases() == {"mp-traefik"}
    until("the Gateway has no address", lambda: not _addresses(control))
    control.live.settings["control_plane_gateway_states"] = {"metallb": "disabled", "keda": "managed"}
    control.run().ok()
    assert control.releases() == {"mp-traefik", "mp-keda"}
    assert control.shown() == f"[{NODE_ADDRESS}]:30080"
    assert not control.there(METALLB, "IPAddressPool", "modelplane", "metallb-system")


def _addresses(control: Control) -> Any:
    gateway = control.plane.get(GATEWAY, "Gateway", "modelplane", SYSTEM) or {}
    return gateway.get("status", {}).get("addresses")


def _scaled_object() -> Object:
    """The example of the documentation."""
    text = (ROOT / "docs/control-plane.md").read_text()
    block = next(each for each in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE) if "ScaledObject" in each)
    found: Object = yaml.safe_load(textwrap.dedent(block))
    return found


def test_an_autoscaler_can_scale_what_the_example_names(control: Control) -> None:
    example = _scaled_object()
    target, namespace = example["spec"]["scaleTargetRef"], example["metadata"]["namespace"]
    manifest = fleets.deployment(target["name"]).replace('"team"', json.dumps(namespace))
    control.live.write("models.yaml", manifest)
    control.run(playbook="reconcile").ok()
    control.plane.apply(example)
    api, name = target["apiVersion"], target["name"]
    path = f"/apis/{api}/namespaces/{namespace}/modeldeployments/{name}/scale"
    scale = json.loads(control.live.kubectl("get", "--raw", path))
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (1, f"modelplane.ai/deployment={name}")
    desired = {"spec": {"replicas": 3}}
    control.plane.objects.patch(api, target["kind"], name, desired, namespace, subresource="scale")
    assert control.again() == (0, [])
    since = control.plane.audit_position()
    control.run(playbook="reconcile").ok()
    # The fleet and the role want the same gateway.
    assert [each for each in control.plane.write_requests(since) if each.group == GATEWAY.partition("/")[0]] == []
    assert control.shown() == f"[{NODE_ADDRESS}]:30080"
    assert control.live.resource(target["kind"], name, namespace)["spec"]["replicas"] == 3


def test_it_stays_while_something_is_scaled_by_it(control: Control) -> None:
    control.live.settings["control_plane_gateway_states"] = {"metallb": "disabled"}
    refused = control.run("-e", "control_plane_state=absent")
    assert refused.code != 0
    assert "keda is needed by ScaledObject ml-team/qwen3-8b" in " ".join(refused.output.split())
    assert control.releases() == {"mp-traefik", "mp-keda"}
    control.plane.objects.delete("keda.sh/v1alpha1", "ScaledObject", "qwen3-8b", "ml-team")
    # What is not asked for stays unless it is disabled.
    assert control.again() == (0, [])


def test_it_stays_while_services_are_routed_through_it(control: Control) -> None:
    route = {
        "apiVersion": GATEWAY,
        "kind": "HTTPRoute",
        "metadata": {
            "name": "chat",
            "namespace": "default",
            "labels": {"app.kubernetes.io/managed-by": "modelplane.fleet"},
        },
        "spec": {"parentRefs": [{"name": "modelplane", "namespace": SYSTEM}]},
    }
    control.plane.apply(route)
    refused = control.run("-e", "control_plane_state=absent")
    assert refused.code != 0
    assert "routes of services: chat" in " ".join(refused.output.split())
    assert control.releases() == {"mp-traefik", "mp-keda"}
    control.plane.objects.delete(GATEWAY, "HTTPRoute", "chat", "default")


def test_it_stays_unless_the_whole_fleet_goes(control: Control) -> None:
    run = control.run("--limit", "control", playbook="teardown")
    assert run.code != 0
    assert "--limit control excludes" in " ".join(run.output.split()), run.output
    assert control.there(GATEWAY, "Gateway", "modelplane", SYSTEM)


def test_it_goes_and_leaves_definitions_and_rights(control: Control) -> None:
    control.run("-e", "control_plane_state=absent", "--check").ok()
    assert control.there(GATEWAY, "Gateway", "modelplane", SYSTEM)
    control.run("-e", "control_plane_state=absent").ok()
    assert control.releases() == set()
    assert not control.there(GATEWAY, "Gateway", "modelplane", SYSTEM)
    assert not control.there(GATEWAY, "GatewayClass", "traefik")
    until("their namespaces are gone", lambda: all(map(control.gone, ("traefik-system", "keda"))))
    assert "address" not in control.status()
    definitions = control.plane.objects.list(DEFINITION, "CustomResourceDefinition")
    groups = {each["spec"]["group"] for each in definitions}
    assert {"gateway.networking.k8s.io", "modelplane.ai"} <= groups
    assert not {"metallb.io", "keda.sh"} & groups
    assert control.there("v1", "ServiceAccount", "modelplane-control-plane", SYSTEM)
    # Only fleet objects change, because the gateway is already deleted.
    assert control.run(playbook="teardown").ok().recap["control"]["changed"] == 1
    until("all of the fleet is gone", lambda: control.gone("metallb-system"))
    assert not control.there(fleets.API, "InferenceGateway", "default")
