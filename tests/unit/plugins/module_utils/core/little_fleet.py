# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet of one resource of each kind, as texts, ways to change and load it, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence

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
          template: {spec: {containers: [{name: engine, image: nvcr.io/nim/qwen}]}}
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
REPLICA = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelReplica
metadata: {name: r, namespace: team}
spec:
  clusterName: east
  engines:
  - name: main
    members:
    - nodePoolName: gpu
      deviceRequests:
      - {name: gpu, deviceClassName: gpu.nvidia.com, selectors: [{cel: 'device.driver == "gpu.nvidia.com"'}]}
      template: {spec: {containers: [{name: engine, image: nvcr.io/nim/qwen}]}}
"""
PATH_GATEWAY = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: 39.0.0}}
"""
AUTH = ", auth: {method: APIKey, apiKey: {secretSelector: {matchLabels: {keys: callers}}}}"
TLS = ", tls: {certificateRefs: [{name: edge}]}"
GATEWAY = f"""\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {{name: edge}}
spec: {{clusterName: west{TLS}{AUTH}}}
"""
POLICY = """\
apiVersion: modelplane.ai/v1alpha1
kind: CallerPolicy
metadata: {name: acme, namespace: team}
spec: {callers: [{name: acme}]}
"""
IMAGE = "image: nvcr.io/nim/qwen}"
"""Image of the deployment, whose server is in the table of servers."""
CONTAINER = "spec.template.spec.engines[0].members[0].template.spec.containers[0]"
FLEET = {"class": CLASS, "cluster": CLUSTER, "cache": CACHE, "deployment": DEPLOYMENT, "service": SERVICE}


def load_text(*texts: str) -> Loaded:
    return load(Source(f"{index}.yaml", text.encode()) for index, text in enumerate(texts))


def fleet(**changed: str) -> Loaded:
    """The little fleet above with some documents replaced or added, one file for each."""
    return load(Source(f"{name}.yaml", text.encode()) for name, text in {**FLEET, **changed}.items())


def change(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def only(problems: Sequence[Problem]) -> Problem:
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def assert_one_problem(
    loaded: Loaded, severity: str, path: str, line: int, says: str, hint: str, *, beside: str = "\0"
) -> None:
    """Check that there is one problem, beside those that say a text, and that its resource is planned or refused."""
    problem = only([each for each in loaded.problems if beside not in each.message])
    assert (problem.severity, problem.path, problem.line) == (severity, path, line)
    assert problem.file
    assert says in problem.message
    assert hint in problem.hint
    assert "h1dden" not in str(problem)
    refused = {resource.ref for resource in loaded.unresolved} | loaded.invalid
    assert (problem.ref in refused) is (severity == "error")
    assert {resource.ref for resource in loaded.resources}.isdisjoint(refused)


def engine(fields: str) -> str:
    """The deployment with more fields in its container."""
    return change(DEPLOYMENT, IMAGE, f"image: vllm/vllm-openai, {fields}}}")


def endpoint(spec: str) -> str:
    """The endpoint with this spec."""
    return change(ENDPOINT, 'spec: {url: "https://api.example.com/"}', f"spec: {spec}")


def service(*entries: str) -> str:
    """The service with these entries."""
    written = "  - selector: {matchLabels: {modelplane.ai/deployment: qwen}}\n"
    return change(SERVICE, written, "".join(f"  - {entry}\n" for entry in entries))


def annotated(text: str, *annotations: str) -> str:
    """A document with these annotations."""
    pairs = ", ".join(f"{key}: x" for key in annotations)
    return change(text, "\nmetadata: {", f"\nmetadata: {{annotations: {{{pairs}}}, ")


OPEN = change(GATEWAY, TLS + AUTH, "")
EXPOSED = change(GATEWAY, "west", "west, serviceSelector: {matchLabels: {exposed: yes-please}}")
SHOWN = change(SERVICE, "name: qwen, namespace: team", "name: shown, namespace: team, labels: {exposed: yes-please}")
SAAS = "  - selector: {matchLabels: {provider: saas}}\n"
KEYED = endpoint("{origin: 'https://a.example', model: a, credential: {apiKey: {secretRef: {name: a}}}}")
HERE = CLUSTER + "  placement: {metadata: {labels: {where: here}}}\n"
