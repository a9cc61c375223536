# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Measure what a whole run costs: `builds.py CLUSTERS DEPLOYMENTS` writes the manifests of a fleet and builds it twice.

Printed is one JSON object: replicas `placed`, `files` of the build folder and its size (`folder`, MiB), seconds of the
`first` build into an empty folder and of the `second`, which finds nothing to do, and the peak `memory` (MiB).
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".collections"))

FLEET = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: h100}
spec:
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: 8, capacity: {memory: {value: 81559Mi}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: "40.2.0"}}
"""
CLUSTER = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: NAME, labels: {region: REGION}}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: NAME}}}
  nodePools: [{name: gpu, className: h100, nodeCount: 4}]
"""
MODEL = """---
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: NAME, namespace: TEAM}
spec:
  replicas: 1
  template:
    spec:
      engines:
      - name: main
        members:
        - nodeSelector: {devices: [{name: gpu, count: COUNT, selectors: [{cel: 'device.driver == "gpu.nvidia.com"'}]}]}
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: NAME, namespace: TEAM}
spec:
  endpoints: [{selector: {matchLabels: {modelplane.ai/deployment: NAME}}}]
"""


def filled(template: str, **values: object) -> str:
    for name, value in values.items():
        template = template.replace(name, str(value))
    return template


def manifests(clusters: int, deployments: int) -> str:
    """A class, a gateway, clusters of 32 GPUs, and deployments of one replica with 1 to 8 GPUs and a service each."""
    fleet = [filled(CLUSTER, NAME=f"c{number:04}", REGION=f"r{number % 10}") for number in range(clusters)]
    models = [
        filled(MODEL, NAME=f"m{number:05}", TEAM=f"team-{number % 20}", COUNT=1 + number % 8)
        for number in range(deployments)
    ]
    return "".join((FLEET, *fleet, *models))


def main(clusters: int, deployments: int) -> None:
    from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import Settings, build

    with tempfile.TemporaryDirectory() as place:
        fleet, folder = Path(place) / "fleet.yaml", Path(place) / "build"
        fleet.write_text(manifests(clusters, deployments), encoding="utf-8")
        seconds = []
        for _ in range(2):
            begin = time.perf_counter()
            outcome = build(Settings((str(fleet),), str(folder)))
            seconds.append(time.perf_counter() - begin)
        if outcome.changes:
            sys.exit("the second build changed something")
        files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    found = {
        "placed": len(outcome.plan.replicas),
        "files": len(files),
        "folder": sum(files) / 2**20,
        "first": seconds[0],
        "second": seconds[1],
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
