# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Who may do what in AWS: IAM roles of the cluster, of nodes and of what runs in it, and the pods that take them.

Pods get their role by EKS Pod Identity; there is no OIDC provider.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.naming import Naming, partition

POLICY_VERSION = "2012-10-17"
CLUSTER = "cluster"
NODE = "node"
EFS_CSI = "efs-csi"
AUTOSCALER = "cluster-autoscaler"

_POD_ACTIONS = ("sts:AssumeRole", "sts:TagSession")
_PODS = "pods.eks.amazonaws.com"
_ROLES: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    (CLUSTER, "eks.amazonaws.com", _POD_ACTIONS[:1], ("AmazonEKSClusterPolicy",)),
    (
        NODE,
        "ec2.amazonaws.com",
        _POD_ACTIONS[:1],
        ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"),
    ),
    (EFS_CSI, _PODS, _POD_ACTIONS, ("service-role/AmazonEFSCSIDriverPolicy",)),
    (AUTOSCALER, _PODS, _POD_ACTIONS, ()),
)
"""Role, who takes it, what that takes, and AWS' own policies that it has."""
_AUTOSCALER_READS = (
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
_AUTOSCALER_SCALES = ("autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup")
_POD_IDENTITIES = ((EFS_CSI, "efs-csi-controller-sa"), (AUTOSCALER, "cluster-autoscaler"))
"""Role, and the service account in kube-system that has it."""


def roles(region: str, naming: Naming) -> list[dict[str, Any]]:
    """The IAM roles: `key`, `name`, `trust` (a policy document), `managed_policies` (ARNs) and `policies` (keys of
    policies of our own)."""
    return [
        {
            "key": key,
            "name": naming.role(key),
            "trust": _document(
                {
                    "Effect": "Allow",
                    "Principal": {"Service": _principal(region, service)},
                    "Action": list(actions),
                }
            ),
            "managed_policies": [f"arn:{partition(region)}:iam::aws:policy/{policy}" for policy in policies],
            "policies": [AUTOSCALER] if key == AUTOSCALER else [],
        }
        for key, service, actions, policies in _ROLES
    ]


def policies(naming: Naming) -> list[dict[str, Any]]:
    """Policies of our own: `key`, `name` and `document`."""
    document = _document(
        {"Effect": "Allow", "Action": list(_AUTOSCALER_READS), "Resource": ["*"]},
        {"Effect": "Allow", "Action": list(_AUTOSCALER_SCALES), "Resource": ["*"]},
    )
    return [{"key": AUTOSCALER, "name": naming.role(AUTOSCALER), "document": document}]


def pod_identities() -> list[dict[str, str]]:
    """Which service accounts have which role: `namespace`, `service_account` and `role` (a key)."""
    return [{"namespace": "kube-system", "service_account": account, "role": role} for role, account in _POD_IDENTITIES]


def _document(*statements: dict[str, Any]) -> dict[str, Any]:
    return {"Version": POLICY_VERSION, "Statement": list(statements)}


def _principal(region: str, service: str) -> str:
    """In China, EC2 is known by another name (AWS documentation, "AWS services in China")."""
    in_china = partition(region) == "aws-cn" and service == "ec2.amazonaws.com"
    return f"{service}.cn" if in_china else service
