# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet that is observed from run to run: what was built is shown as applied, ready or not."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.module_utils.common.yaml import yaml_load
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

Object = dict[str, Any]

MANIFESTS = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: l4}
spec:
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: east}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: east}, cache: {storageClassName: rwx}}}
  nodePools: [{name: gpu, className: l4, nodeCount: 4}]
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: west}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: west}, cache: {storageClassName: rwx}}}
  nodePools: [{name: gpu, className: l4, nodeCount: 4}]
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelCache
metadata: {name: weights, namespace: team}
spec:
  source: HuggingFace
  huggingFace: {repo: Qwen/Qwen3-8B, sizeGiB: 40, authSecret: {name: hf}}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen, namespace: team}
spec:
  replicas: 2
  rollout: {maxSurge: 0}
  template:
    spec:
      modelCacheRef: {name: weights}
      engines:
      - name: main
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: device.driver == "gpu.nvidia.com"}]}]}
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: together, namespace: team, labels: {provider: together}}
spec: {url: "https://api.together.xyz/", rewritePath: /}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: chat, namespace: team}
spec:
  endpoints:
  - selector: {matchLabels: {modelplane.ai/deployment: qwen}}
  - priority: 1
    selector: {matchLabels: {provider: together}}
"""


@functools.cache
def _as_json(text: str) -> str:
    """Text of YAML as text of JSON, which is read again in a tenth of the time."""
    return json.dumps(yaml_load(text))


def up(value: Object) -> Object:
    """An object whose controller is through with it."""
    copies = value.get("spec", {}).get("replicas", 1)
    status: Object = {"conditions": [{"type": kind, "status": "True"} for kind in ("Available", "Complete")]}
    status |= dict.fromkeys(("replicas", "availableReplicas", "readyReplicas", "updatedReplicas"), copies)
    if value["kind"] == "PersistentVolumeClaim":
        status["phase"] = "Bound"
    return {**value, "status": status}


def down(value: Object) -> Object:
    return {**value, "status": {"conditions": [{"type": "Available", "status": "False"}], "updatedReplicas": 1}}


def _all_up(_cluster: str, value: Object) -> Object:
    return up(value)


# Build folders of fleets that were settled, by all that they depend on.
_settled: dict[str, tempfile.TemporaryDirectory[str]] = {}


def check_counts(outcome: build.Outcome) -> None:
    """Each status of a ModelDeployment counts all existing replicas."""
    for value in outcome.statuses:
        if value["kind"] == "ModelDeployment":
            key = (value["metadata"]["namespace"], value["metadata"]["name"])
            of_it = [each for each in outcome.plan.running if (each.namespace, each.deployment) == key]
            serving = [each for each in of_it if outcome.plan.states[key[0], each.name].ready]
            counts = value["status"]["replicas"]
            assert (counts["total"], counts["ready"]) == (len(of_it), len(serving)), key


class Fleet:
    """Manifests, what is built of them, and what is observed of the clusters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built = folder / "build"
        self.text = MANIFESTS
        self.silent: set[str] = set()
        self.listeners: list[Object] = [{"name": "http", "protocol": "HTTP", "port": 80}]
        self.declared: set[str] = set()
        self.absent: set[str] = set()
        self.openshift: set[str] = set()
        self.shown: Callable[[str, Object], Object] = _all_up
        self.secrets: list[Object] = [{"namespace": "team", "name": "hf", "keys": ["HF_TOKEN"]}]

    def edit(self, old: str, new: str) -> None:
        assert old in self.text
        self.text = self.text.replace(old, new)

    def objects(self, top: str = "", kind: str = "") -> list[Object]:
        found = [json.loads(_as_json(path.read_text())) for path in sorted((self.built / top).rglob("*.yaml"))]
        return [value for value in found if not kind or value["kind"] == kind]

    def observations(self) -> Object:
        clusters = {}
        for name in ("east", "west"):
            gateway = {
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "metadata": {"name": "inference-gateway", "namespace": "modelplane-system"},
                "spec": {"listeners": self.listeners},
                "status": {"addresses": [{"type": "IPAddress", "value": f"192.0.2.{len(name + name[0])}"}]},
            }
            seen = [self.shown(name, value) for value in self.objects(f"clusters/{name}")]
            # A gateway in mode Model has the place of the serving stack's.
            if not any(
                value["metadata"]["name"] == "inference-gateway" for value in seen if value["kind"] == "Gateway"
            ):
                seen.insert(0, gateway)
            clusters[name] = {"stack": {"ready": True}, "nodes": {"gpu": 4}, "objects": seen}
            if name in self.openshift:
                clusters[name]["openshift"] = True
            if name in self.silent:
                clusters[name] = {"unreachable": "connection refused"}
            elif name in self.declared:
                clusters[name] = {"declared": True}
            elif name in self.absent:
                del clusters[name]
        control = [up(value) for value in self.objects("control")]
        return {"control": {"objects": control, "secrets": self.secrets}, "clusters": clusters}

    def run(self, **more: Any) -> build.Outcome:
        manifests, seen = self.folder / "fleet.yaml", self.folder / "observed.yaml"
        manifests.write_text(self.text)
        seen.write_text(json.dumps(self.observations()))
        outcome = build.build(fleet_inputs.Settings((str(manifests),), str(self.built), observations=str(seen), **more))
        check_counts(outcome)
        return outcome

    def run_unseen(self, **more: Any) -> build.Outcome:
        """A run without observations."""
        manifests = self.folder / "fleet.yaml"
        manifests.write_text(self.text)
        return build.build(fleet_inputs.Settings((str(manifests),), str(self.built), **more))

    def settle(self) -> None:
        """Run until nothing changes. What begins as another fleet did ends as that one, and is copied."""
        key = "" if self.built.exists() else repr({**vars(self), "folder": type(self), "built": ""})
        if key in _settled:
            shutil.copytree(_settled[key].name, self.built)
            return
        for _ in range(12):
            if not self.run().changes:
                break
        else:
            raise AssertionError("twelve runs, and something changes still")
        if key:
            _settled[key] = tempfile.TemporaryDirectory()
            shutil.copytree(self.built, _settled[key].name, dirs_exist_ok=True)

    def status(self, kind: str, name: str = "") -> Object:
        found = [value for value in self.objects("status", kind) if name in ("", value["metadata"]["name"])]
        assert len(found) == 1, [value["metadata"]["name"] for value in found]
        return found[0]["status"]

    def reason(self, kind: str, condition: str, name: str = "") -> tuple[str, str]:
        entries = self.status(kind, name)["conditions"]
        return next((entry["status"], entry["reason"]) for entry in entries if entry["type"] == condition)

    def addresses(self) -> dict[str, str]:
        """Return where the endpoint of the replica on each cluster leads."""
        return {
            value["metadata"]["labels"]["modelplane.ai/cluster"]: value["spec"]["url"].split("/")[2].partition(":")[0]
            for value in self.objects("control", "ModelEndpoint")
            if "modelplane.ai/cluster" in value["metadata"]["labels"]
        }

    def backends(self) -> list[str]:
        """Return what the service leads to: clusters of replicas, and names of other endpoints."""
        clusters = {}
        for endpoint in self.objects("control", "ModelEndpoint"):
            name = endpoint["metadata"]["name"]
            clusters[name] = endpoint["metadata"]["labels"].get("modelplane.ai/cluster", name)
        found = []
        for route in self.objects("control", "HTTPRoute"):
            for reference in route["spec"]["rules"][0].get("backendRefs", ()):
                name = reference["name"].rpartition("-endpoint-")[0]
                found.append(clusters.get(name, name))
        return sorted(found)
