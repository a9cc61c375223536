# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKSClusters of tests."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def gpu(name: str = "gpu-l4", **more: Any) -> Object:
    return {
        "name": name,
        "role": "GPU",
        "instanceType": "g6.12xlarge",
        "gpu": {"acceleratorType": "nvidia-l4"},
        "zones": ["us-west-2a"],
        **more,
    }


def eks(*pools: Object, name: str = "eks-us-west", namespace: str = "modelplane-system", **spec: Any) -> Object:
    """An EKSCluster as a user writes it; without pools, with one of L4."""
    return {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "EKSCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"region": "us-west-2", "nodePools": list(pools or (gpu(),)), **spec},
    }


def inference_cluster(*pools: Object, name: str = "eks-us-west", **block: Any) -> Object:
    """An InferenceCluster with source EKS."""
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name},
        "spec": {
            "cluster": {"source": "EKS", "eks": {"region": "us-west-2", **block}},
            "nodePools": list(pools or ({"name": "gpu-l4", "className": "l4", "zones": ["us-west-2a"]},)),
        },
    }


def inference_class(name: str = "l4", accelerator: str = "nvidia-l4", provider: str = "EKS") -> Object:
    machine = {"EKS": ("instanceType", "g6.12xlarge"), "GKE": ("machineType", "g2-standard-48")}[provider]
    block = {machine[0]: machine[1], "diskSizeGb": 200, "accelerator": {"type": accelerator, "count": 4}}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceClass",
        "metadata": {"name": name},
        "spec": {
            "provisioning": {"provider": provider, provider.lower(): block},
            "devices": [
                {
                    "name": "gpu",
                    "claim": "DRA",
                    "driver": "gpu.nvidia.com",
                    "deviceClassName": "gpu.nvidia.com",
                    "count": 4,
                }
            ],
        },
    }


def replica(cluster: str) -> Object:
    """A ModelReplica of a cluster."""
    gpu = {"name": "gpu", "deviceClassName": "gpu.nvidia.com"}
    member = {
        "role": "Standalone",
        "nodePoolName": "gpu-l4",
        "deviceRequests": [gpu],
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}},
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelReplica",
        "metadata": {
            "name": "qwen",
            "namespace": "ml-team",
            "labels": {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/cluster": cluster},
        },
        "spec": {"clusterName": cluster, "engines": [{"name": "main", "members": [member]}]},
    }
