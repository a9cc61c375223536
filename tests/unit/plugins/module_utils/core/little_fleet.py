# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet of one resource of each kind, as texts, and ways to change and load it."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem

CLASS = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: l4}
spec:
  provisioning:
    provider: GKE
    gke: {machineType: g2, accelerator: {type: nvidia-l4, count: 1}}
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}
"""
CLUSTER = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: west, labels: {modelplane.ai/region: west}}
spec:
  cluster: {source: GKE, gke: {region: us-west1}}
  nodePools:
  - name: gpu
    className: l4
    zones: [us-west1-a]
"""
CACHE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelCache
metadata: {name: weights, namespace: team}
spec:
  source: HuggingFace
  huggingFace: {repo: Qwen/Qwen3-8B, sizeGiB: 40}
"""
DEPLOYMENT = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen, namespace: team}
spec:
  replicas: 1
  template:
    metadata: {labels: {tier: gold}}
    spec:
      clusterSelector: {matchLabels: {modelplane.ai/region: west}}
      modelCacheRef: {name: weights}
      engines:
      - name: main
        members:
        - role: Standalone
          nodeSelector:
            devices:
            - name: gpu
              selectors:
              - cel: device.driver == "gpu.nvidia.com"
          template: {spec: {containers: [{name: engine, image: vllm}]}}
"""
SERVICE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: qwen, namespace: team}
spec:
  endpoints:
  - selector: {matchLabels: {modelplane.ai/deployment: qwen}}
"""
ENDPOINT = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: saas, namespace: team, labels: {provider: saas}}
spec: {url: "https://api.example.com/"}
"""
FLEET = {"class": CLASS, "cluster": CLUSTER, "cache": CACHE, "deployment": DEPLOYMENT, "service": SERVICE}


def load_text(*texts: str) -> Loaded:
    return load(Source(f"{index}.yaml", text.encode()) for index, text in enumerate(texts))


def fleet(**changed: str) -> Loaded:
    """The little fleet above with some documents replaced or added, one file for each."""
    return load(Source(f"{name}.yaml", text.encode()) for name, text in {**FLEET, **changed}.items())


def change(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def only(problems: tuple[Problem, ...]) -> Problem:
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]
