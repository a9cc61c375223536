# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What EKS runs in a cluster, and the storage that models are kept on."""

from __future__ import annotations

from typing import Any

STORAGE_CLASS = "modelplane-rwx-efs"

NODE_ADDONS = ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent")
STORAGE_ADDON = "aws-efs-csi-driver"
"""After the role of its service account is bound, so that its first pod has credentials."""


def addons() -> list[dict[str, str]]:
    """The addons of EKS in the order in which they are made, at the versions that EKS takes for the cluster's."""
    return [{"name": name} for name in (*NODE_ADDONS, STORAGE_ADDON)]


def storage_class(file_system: str) -> dict[str, Any]:
    """The StorageClass for weights on a file system of EFS; each claim becomes an access point of it."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "efs.csi.aws.com",
        "parameters": {"provisioningMode": "efs-ap", "fileSystemId": file_system, "directoryPerms": "700"},
        "volumeBindingMode": "Immediate",
    }
