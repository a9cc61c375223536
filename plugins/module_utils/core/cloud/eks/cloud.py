# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Definition of Amazon EKS for the registry of clouds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ... import api
from ...api.eks_settings import EKSClusterSettings
from ...api.inference_class import EKSProvisioning
from ...api.inference_cluster import NodePool
from ...api.pricing import PurchaseOption
from ..cloud import Cloud, Fabric, Login, Platform, node_pool
from . import demand, machines, needs
from .names import cluster_name
from .reading import KIND
from .validation import VALIDATION

_EFA = Fabric(
    type="EFA",
    device_class="efa.networking.k8s.aws",
    libraries="libfabric, aws-ofi-nccl",
    pattern=re.compile(r"(?<![a-z])efa(?![a-z])|libfabric|aws-ofi", re.IGNORECASE),
    images="llm-d-aws or vLLM's of the AWS Deep Learning Containers",
)


def _login(place: Any, name: str) -> dict[str, Any]:
    return {"cluster": name, "region": place.region}


def _node_pool(pool: NodePool, provisioning: EKSProvisioning, sizes: Mapping[str, int]) -> dict[str, Any]:
    machine: dict[str, Any] = {"instanceType": provisioning.instance_type}
    if pool.capacity_block:
        machine["capacityBlock"] = api.wire(pool.capacity_block)
    if pool.fabric and pool.fabric.type == _EFA.type:
        machine["fabric"] = _EFA.type
    return node_pool(pool, machine, sizes, {"acceleratorType": provisioning.accelerator.type}, pool.eks)


def _machine(provisioning: EKSProvisioning) -> str:
    return provisioning.instance_type


def _purchase_option(pool: NodePool) -> PurchaseOption:
    if pool.capacity_block:
        return "Reserved"
    return "Spot" if pool.eks and pool.eks.capacity_type == "SPOT" else "OnDemand"


CLOUD = Cloud(
    name="eks",
    source="EKS",
    kind=KIND,
    vendor="AWS",
    login=Login(
        options={
            "cluster": {"type": "str", "required": True},
            "region": {"type": "str"},
            "profile": {"type": "str"},
            "role_arn": {"type": "str"},
            "endpoint": {"type": "str"},
        },
        of=_login,
        overrides={
            "eks_cluster_profile": "profile",
            "eks_cluster_role_arn": "role_arn",
            "eks_cluster_endpoint_url": "endpoint",
        },
    ),
    cluster_name=cluster_name,
    settings=EKSClusterSettings,
    node_pool=_node_pool,
    validation=VALIDATION,
    needs=needs.needs,
    demands=demand.of_cluster,
    quota_words=demand.WORDS,
    machine=_machine,
    architecture=machines.architecture,
    old_driver=lambda _pool: "",
    purchase_option=_purchase_option,
    storage_class="modelplane-rwx-efs",
    # The autoscaler only knows the devices of a group from its nodes (kubernetes/autoscaler#7799).
    starts_first_node=False,
    fabrics=(_EFA,),
    platform=Platform(
        # Such as v1.36.1-eks-7f9249a.
        version_mark="-eks-",
        # EKS creates a Classic Load Balancer, which closes connections that are idle for 60 seconds.
        load_balancer_annotations={"service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout": "3600"},
        provider_id="aws://",
        load_balancers=("aws-load-balancer-controller",),
        one_node=("ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com", "kubernetes.io/aws-ebs"),
        many_nodes=("efs.csi.aws.com", "fsx.csi.aws.com", "fsx.openzfs.csi.aws.com"),
        network_device_classes=(_EFA.device_class,),
        # Metadata, DNS, time.
        metadata_networks=("fd00:ec2::/32",),
        # The range in a VPC of 10.0.0.0/8; other VPCs have the range of kubeadm.
        services=("172.20.0.0/16",),
    ),
)
