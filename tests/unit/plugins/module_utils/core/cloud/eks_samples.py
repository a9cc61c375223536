# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Clusters on EKS that tests make plans of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MANIFESTS = Path(__file__).parents[5] / "data" / "manifests"
SEED = ("concepts/inference-class-eks-l4.yaml", "seeds/inference-cluster-eks.yaml")
EFA = MANIFESTS.parent / "eks" / "cluster-efa.yaml"


def seed() -> list[dict[str, Any]]:
    """The InferenceCluster eks-us-west and its class."""
    return [value for name in SEED for value in yaml.safe_load_all((MANIFESTS / name).read_text())]


def efa() -> dict[str, Any]:
    """An EKSCluster with EFA, a capacity block and a network of its own."""
    found: dict[str, Any] = yaml.safe_load(EFA.read_text())
    return found


def pool(name: str = "gpu", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "role": "GPU",
        "instanceType": "g6.xlarge",
        "gpu": {"acceleratorType": "nvidia-l4"},
        "zones": ["us-west-2a"],
        **more,
    }


def cluster(*pools: dict[str, Any], name: str = "west", namespace: str = "modelplane-system", **spec: Any) -> Any:
    """An EKSCluster in wire form."""
    return {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "EKSCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"region": "us-west-2", "nodePools": list(pools) or [pool()], **spec},
    }
