# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.images import (
    Reference,
    in_manifests,
    in_object,
    moved,
    reference,
)
from hypothesis import given
from hypothesis import strategies as st

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.29", "docker.io/library/nginx:1.29"),
        ("docker.io/python:3", "docker.io/library/python:3"),
        ("index.docker.io/library/python:3", "docker.io/library/python:3"),
        ("vllm/vllm-openai:v0.11.0", "docker.io/vllm/vllm-openai:v0.11.0"),
        ("a/b/c", "docker.io/a/b/c:latest"),
        ("quay.io/a/b", "quay.io/a/b:latest"),
        ("localhost/a:1", "localhost/a:1"),
        ("registry:5000/a:1", "registry:5000/a:1"),
        ("LOCALHOST/a", "LOCALHOST/a:latest"),
        ("[::1]:5000/a:1", "[::1]:5000/a:1"),
        (f"ghcr.io/a/b@{DIGEST}", f"ghcr.io/a/b@{DIGEST}"),
        (f"ghcr.io/a/b:v1@{DIGEST}", f"ghcr.io/a/b:v1@{DIGEST}"),
        ("ghcr.io/a/b@sha512:" + "0f" * 64, "ghcr.io/a/b@sha512:" + "0f" * 64),
    ],
)
def test_what_a_reference_means(text: str, meant: str) -> None:
    assert str(reference(text)) == meant


@pytest.mark.parametrize(
    "text", ["", "UPPER", "a//b", "a b", "http://a/b", "a:b:c", "a@sha256:12", "-a", "{{ x }}", "a/", "/a"]
)
def test_what_is_none(text: str) -> None:
    assert reference(text) is None


@given(st.from_regex(r"([a-z]{1,5}\.[a-z]{2,5}/)?[a-z]{1,5}(/[a-z]{1,5})?(:[a-z0-9]{1,5})?", fullmatch=True))
def test_a_reference_in_full_means_the_same(text: str) -> None:
    meant = reference(text)
    assert meant is not None
    assert reference(str(meant)) == meant
    assert str(moved(meant, {})) == str(meant)


@pytest.mark.parametrize(
    ("registries", "desired"),
    [
        ({}, "docker.io/library/nginx:1"),
        ({"quay.io": "mirror"}, "docker.io/library/nginx:1"),
        ({"docker.io": ""}, "docker.io/library/nginx:1"),
        ({"docker.io": "mirror:5000"}, "mirror:5000/library/nginx:1"),
        ({"docker.io": "mirror.example/hub/"}, "mirror.example/hub/library/nginx:1"),
    ],
)
def test_where_an_image_is_in_a_mirror(registries: dict[str, str], desired: str) -> None:
    assert str(moved(Reference("docker.io", "library/nginx", "1", ""), registries)) == desired


MANIFESTS = f"""
---
# Source: chart/crds/gauges.yaml: image: docker.io/not/this:1
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: gauges.example.com}}
spec: {{versions: [{{schema: {{description: "such as docker.io/not/this:2"}}}}]}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: certgen
  annotations: {{helm.sh/hook: pre-install, images: "docker.io/not/this:3"}}
spec:
  template:
    metadata: {{annotations: {{image: not/this}}}}
    spec:
      initContainers: [{{name: first, image: first}}]
      containers:
        - name: second
          image: "quay.io/second:v1"
          args: ["--reloader=quay.io/third/reloader:v2", "--service=kube-system/kubelet", "--address=0.0.0.0:8080"]
          env: [{{name: SOLVER, value: quay.io/fourth@{DIGEST}}}, {{name: URL, value: "https://a.example/b:1"}}]
      volumes: [{{name: models, image: {{reference: ghcr.io/fifth/weights:1, pullPolicy: Always}}}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: config}}
data:
  envoy-gateway.yaml: |
    kubernetes:
      rateLimitDeployment:
        container:
          image: sixth/ratelimit:abc
      shutdownManager: {{image: "docker.io/seventh/gateway:v1"}}
    hostname: controller.system.svc.cluster.local
    app.kubernetes.io/name: "x"
    port: controller.system.svc:1063/path
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
spec: {{image: quay.io/eighth/prometheus:v3, baseImage: quay.io/ninth/old:1, version: v3}}
---
kind: Deployment
spec:
  image: {{ tenth
  other: quay.io/tenth/broken:1
"""


def test_images_of_rendered_manifests() -> None:
    assert in_manifests(MANIFESTS) == {
        "docker.io/library/first:latest",
        "quay.io/second:v1",
        "quay.io/third/reloader:v2",
        f"quay.io/fourth@{DIGEST}",
        "ghcr.io/fifth/weights:1",
        "docker.io/sixth/ratelimit:abc",
        "docker.io/seventh/gateway:v1",
        "quay.io/eighth/prometheus:v3",
        "quay.io/ninth/old:1",
        "quay.io/tenth/broken:1",
    }


@pytest.mark.parametrize(
    "text", ["", "---\n", "not yaml: [", "kind: List\nitems: 3", "kind: Pod\nspec: {image: {a: b}}"]
)
def test_what_names_none(text: str) -> None:
    assert in_manifests(text) == set()


@pytest.mark.parametrize(
    ("value", "texts", "found"),
    [
        ({"image": "a.io/b:1"}, True, {"a.io/b:1"}),
        ({"image": 3, "other": None}, True, set()),
        ({"args": ["--model=hf.co/a/b:Q4"]}, True, {"hf.co/a/b:Q4"}),
        ({"args": ["--model=hf.co/a/b:Q4"]}, False, set()),
        ([{"spec": {"image": "b"}}], False, {"docker.io/library/b:latest"}),
        ("plain text", True, set()),
    ],
)
def test_images_of_objects(value: Any, texts: bool, found: set[str]) -> None:
    assert in_object(value, texts=texts) == found
