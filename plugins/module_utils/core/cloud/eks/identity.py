# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Permissions in AWS: the IAM roles of the control plane, of nodes, and of two controllers in the cluster."""

from __future__ import annotations

from typing import Any

from . import names, regions

_VERSION = "2012-10-17"
_ASSUME = "sts:AssumeRole"
_MANAGED = {
    "cluster": ("AmazonEKSClusterPolicy",),
    "node": ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"),
    "efs_csi": ("service-role/AmazonEFSCSIDriverPolicy",),
    "autoscaler": (),
}
_READ = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
    "eks:DescribeNodegroup",
)
_SCALE = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")
_MOUNT = (
    "elasticfilesystem:ClientMount",
    "elasticfilesystem:ClientRootAccess",
    "elasticfilesystem:ClientWrite",
)
_SYSTEM = "kube-system"

POD_IDENTITIES = (
    {"namespace": _SYSTEM, "service_account": "efs-csi-controller-sa", "role": "efs_csi"},
    {"namespace": _SYSTEM, "service_account": "cluster-autoscaler", "role": "autoscaler"},
)
"""Controllers of the cluster and the roles that they assume (EKS Pod Identity)."""


def roles(namespace: str, name: str, region: str) -> list[dict[str, Any]]:
    """Return the IAM roles. `policy` is the key of a policy of the collection that is attached to the role."""
    trusts: dict[str, tuple[str, tuple[str, ...]]] = {
        "cluster": ("eks.amazonaws.com", (_ASSUME,)),
        "node": (regions.ec2_service(region), (_ASSUME,)),
        "efs_csi": ("pods.eks.amazonaws.com", (_ASSUME, "sts:TagSession")),
        "autoscaler": ("pods.eks.amazonaws.com", (_ASSUME, "sts:TagSession")),
    }
    arn = f"arn:{regions.partition(region)}:iam::aws:policy"
    return [
        {
            "key": key,
            "name": names.role_name(namespace, name, key),
            "trust": _document(_allow(actions, Principal={"Service": service})),
            "managed_policies": [f"{arn}/{policy}" for policy in _MANAGED[key]],
            "policy": key if key == "autoscaler" else "",
        }
        for key, (service, actions) in trusts.items()
    ]


def policies(namespace: str, name: str) -> list[dict[str, Any]]:
    """Return the IAM policies that AWS does not provide.

    EKS tags the Auto Scaling groups of each node group with the name of its cluster. The autoscaler can only change the
    groups of its own cluster.
    """
    cluster_tag = {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{names.cluster_name(namespace, name)}": "owned"}
    scale = _allow(_SCALE, Resource=["*"], Condition={"StringEquals": cluster_tag})
    document = _document(_allow(_READ, Resource=["*"]), scale)
    return [{"key": "autoscaler", "name": names.role_name(namespace, name, "autoscaler"), "document": document}]


def file_system_policy() -> dict[str, Any]:
    """Return the policy of the file system: clients in the VPC mount it through its mount targets and with TLS.

    The driver mounts it in the same way (Amazon EFS User Guide, "Resource-based policy examples").
    """
    everyone = {"AWS": "*"}
    mounted = {"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}}
    plain = {
        "Effect": "Deny",
        "Principal": everyone,
        "Action": "*",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return _document(_allow(_MOUNT, Principal=everyone, Condition=mounted), plain)


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": _VERSION, "Statement": list(statements)}


def _allow(actions: tuple[str, ...], **rest: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions[0] if len(actions) == 1 else list(actions), **rest}
