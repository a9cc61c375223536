# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints for errors of AWS, and for health issues of a node group, an addon or a cluster.

Codes are from the service models (EKS: NodegroupIssueCode, AddonIssueCode, ClusterIssueCode, ErrorCode) and from the
lists of error codes of EC2, IAM, STS, EFS and Elastic Load Balancing.
"""

from __future__ import annotations

import re

from ..hints import Hints

_QUOTA = "request a quota increase in Service Quotas"
_CAPACITY = (
    "AWS has no capacity for this instance type in the zone: add zones to the pool, use another instance type, or "
    "reserve a Capacity Block and set capacityBlock.capacityReservationId; then run again"
)
_VCPU = (
    f"The account's vCPU quota for this instance family is used up: {_QUOTA} (EC2, Running On-Demand instances of the "
    "family), or lower minNodeCount and nodeCount of the pool"
)
_BLOCK_INACTIVE = (
    "The Capacity Block is not active: wait until its start, or set the ID of an active one; until then set nodeCount "
    "and minNodeCount of the pool to 0"
)
_BLOCK_FULL = (
    "The reservation has no free instance left: lower nodeCount and maxNodeCount to its size, or stop other instances "
    "in it"
)
_BLOCK_WRONG = (
    "Set the ID of a reservation of this account and region with the instance type and zone of the pool (`aws ec2 "
    "describe-capacity-reservations`)"
)
_ZONE = (
    "The zone does not offer EKS or the instance type: use a zone that the message or `aws ec2 "
    "describe-instance-type-offerings --location-type availability-zone` lists"
)
_PERMISSIONS = (
    "Grant the identity of this run the permission in the message; docs/kinds/EKSCluster.md has a policy with all "
    "permissions, and a service control policy or permissions boundary might deny one"
)
_CREDENTIALS = (
    "Check the access key, the secret key and the session token, and whether the region is enabled for the account "
    "and in the same partition"
)
_RETRY = "The error is on the side of AWS: run again, and check the AWS Health Dashboard if it persists"
_ADDRESSES = (
    "The subnet has too few free addresses: give the EKSCluster larger spec.networking.subnetCidrs (requires a new "
    "cluster), or lower maxNodeCount of its pools"
)
_VERSION = "Use a Kubernetes version that `aws eks describe-cluster-versions` lists"
_QUOTAS = {
    "AddressLimitExceeded InsufficientAddressCapacity": "EC2, EC2-VPC Elastic IPs",
    "VpcLimitExceeded": "VPCs per Region",
    "NatGatewayLimitExceeded": "NAT gateways per Availability Zone",
    "InternetGatewayLimitExceeded": "Internet gateways per Region",
    "SubnetLimitExceeded RouteTableLimitExceeded RouteLimitExceeded *SecurityGroupLimitExceeded "
    "NetworkInterfaceLimitExceeded EniLimitReached": "Amazon VPC",
    "FileSystemLimitExceeded AccessPointLimitExceeded ThroughputLimitExceeded": "Amazon EFS",
    "IamLimitExceeded": "IAM",
    "Ec2LaunchTemplateMaxLimitExceeded": "EC2, launch templates",
    "ServiceQuotaExceeded *LimitExceeded": "the quota in the message",
}
"""Quota names by error code."""
_CODES = {
    "InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity": _CAPACITY,
    "VcpuLimitExceeded InstanceLimitExceeded": _VCPU,
    "MaxSpotInstanceCountExceeded SpotMaxPriceTooLow": "The account's quota for Spot instances is used up: "
    f"{_QUOTA} (EC2, All Spot Instance Requests of the family)",
    "ReservationCapacityExceeded InsufficientReservedInstanceCapacity": _BLOCK_FULL,
    "CapacityBlockNotActive InvalidCapacityReservationState IncorrectCapacityReservationState": _BLOCK_INACTIVE,
    "InvalidCapacityReservationId* CapacityReservation*": _BLOCK_WRONG,
    "UnsupportedAvailabilityZone Unsupported AvailabilityZonesMismatch": _ZONE,
    "InvalidInstanceType Ec2InstanceTypeDoesNotExist": "Correct instanceType: the region has no such type",
    "Throttling* Throttled* RequestLimitExceeded TooManyRequests BandwidthLimitExceeded IamThrottling "
    "AutoScalingGroupRateLimitExceeded PriorRequestNotComplete SlowDown": "AWS limits the rate of calls: run again "
    "later, or provision fewer clusters at once (forks)",
    "Ec2LaunchTemplateVersionMaxLimitExceeded": "Remove old versions of the launch template (`aws ec2 "
    "delete-launch-template-versions`)",
    **{
        codes: f"A quota of the account is used up: remove unused resources, or {_QUOTA} ({quota})"
        for codes, quota in _QUOTAS.items()
    },
    "InsufficientFreeAddresses* NoFreeAddressesInSubnet IpNotAvailable IpAddressInUse": _ADDRESSES,
    "AccessDenied* *UnauthorizedOperation Forbidden NotAuthorized AuthorizationError "
    "OperationNotPermitted": _PERMISSIONS,
    "ExpiredToken* RequestExpired TokenRefreshRequired": "Log in again (for example `aws sso login`), or provide "
    "access keys and a session token that have not expired",
    "InvalidClientTokenId UnrecognizedClient AuthFailure InvalidAccessKeyId SignatureDoesNotMatch IncompleteSignature "
    "MissingAuthenticationToken InvalidSignature InvalidToken NoCredentials NoCredentialProviders": _CREDENTIALS,
    "*OptInRequired SubscriptionRequired RegionDisabled Ec2ServiceNotSubscribed": "Enable the region or the service "
    "for this account (AWS account settings, AWS Regions), or use another region",
    "PendingVerification": "AWS is verifying the account for this region: wait for its email, or use another region",
    "StsRegionalEndpointDisabled": "Activate the regional STS endpoint of the region (IAM, Account settings, Security "
    "Token Service)",
    "DependencyViolation": "Something in the VPC still uses this, such as a load balancer, network interface or "
    "security group of a controller or a person: remove what the collection did not create, then run again",
    "ResourceInUse FileSystemInUse DeleteConflict InUse VolumeInUse Conflict IncorrectState IncorrectInstanceState "
    "InvalidState IncorrectFileSystemLifeCycleState IncorrectMountTargetState": "Something still uses this, or it is "
    "being changed: run again when the change is complete",
    "MountTargetConflict": "The file system has a mount target of another network in this zone: remove it, then run "
    "again",
    "*AlreadyExists *.Duplicate": "A resource with this name already exists and was not created by this collection: "
    "rename or remove it",
    "MalformedPolicyDocument InvalidPolicy": "IAM rejects the statement in the message: check the partition of the "
    "region",
    "NodeCreationFailure ClusterUnreachable": "The nodes did not join the cluster: check the system log of an "
    "instance, the route of the private subnets to the NAT gateway, and the node role and security groups; the next "
    "run creates the node group again",
    "IamNodeRoleNotFound IamInstanceProfileNotFound IamRoleNotFound AutoScalingGroupNotFound Ec2SecurityGroupNotFound "
    "Ec2SubnetNotFound Ec2LaunchTemplateNotFound SourceEc2LaunchTemplateNotFound SubnetNotFound SecurityGroupNotFound "
    "VpcNotFound VpcIdNotFound": "A resource of the cluster was removed outside of this collection: run provision, "
    "which creates it again",
    "Ec2LaunchTemplateVersionMismatch AutoScalingGroupInvalidConfiguration": "The Auto Scaling group was changed "
    "outside of EKS: undo the change, or rename the pool to replace it",
    "Ec2SubnetInvalidConfiguration Ec2SubnetMissingIpv6Assignment": "The subnet was changed outside of this "
    "collection: run provision again to restore it",
    "Ec2LaunchTemplateInvalidConfiguration": "Check the field in the message in the launch template; provision writes "
    "a new version if it differs",
    "Ec2SubnetListTooLong": "This field is immutable: rename the pool to replace it",
    "Ec2SecurityGroupDeletionFailure Ec2LaunchTemplateDeletionFailure": "Remove what still uses it, then run again",
    "NodeTerminationFailure PodEvictionFailure": "A pod could not be evicted: check PodDisruptionBudgets and "
    "terminating pods (`kubectl get pdb,pods -A`), then run again",
    "AutoScalingGroupInstanceRefreshActive": "Wait until the instance refresh of the Auto Scaling group is complete, "
    "or cancel it, then run again",
    "AmiIdNotFound": "The image of the nodes no longer exists: update the node group, or use a Kubernetes version that "
    "EKS supports",
    "KubernetesLabelInvalid": "Correct the label in the message: pool names and accelerator types are label values",
    "UnsupportedVersion": _VERSION,
    "Kms*": "Check the key that encrypts the cluster in AWS KMS: it must exist and be enabled, and the cluster role "
    "must be allowed to use it",
    "AddonPermissionFailure": "Check the role in the addon's pod identity association, and its policies",
    "AddonSubscriptionNeeded": "Subscribe to the addon in AWS Marketplace first",
    "InsufficientNumberOfReplicas": "Its pods are unschedulable or do not start: check the system node group and the "
    "pods in kube-system",
    "ConfigurationConflict AdmissionRequestDenied K8sResourceNotFound": "Another field manager in the cluster owns the "
    "same fields: check the object in the message, remove or adapt it, and run again",
    "UnsupportedAddonModification": "Set another version of the addon in eks_cluster_addons, or remove it to use the "
    "default",
    "InternalFailure InternalError InternalServerError Server ServiceUnavailable Unavailable ServerInternal "
    "DependencyTimeout ResourcePropagationDelay RequestTimeout*": _RETRY,
}
"""Hints by codes without a trailing `Exception`."""
_TEXTS = {
    r"deletion protection": "Turn off its deletion protection if it is no longer needed, then run again",
    r"capacity.?block.*(not (yet )?active|not (yet )?started|has expired|has ended)": _BLOCK_INACTIVE,
    r"(not (yet )?active|expired).*capacity.?block": _BLOCK_INACTIVE,
    r"reservation.*(not have sufficient|no available|insufficient)": _BLOCK_FULL,
    r"capacity.?reservation.*(does not exist|not found|not exist|mismatch|does not match)": _BLOCK_WRONG,
    r"sufficient .*capacity|insufficient.*capacity": _CAPACITY,
    r"vcpu (capacity|limit)|vcpu.*bucket": _VCPU,
    r"(instance type|targeted).*(not supported|unsupported).*(zone|region)": _ZONE,
    r"unsupported kubernetes (minor )?version|kubernetes version.*(not supported|unsupported)": _VERSION,
    r"(not authorized|access ?denied|unauthorized)": _PERMISSIONS,
    r"role.*(could not be assumed|cannot be assumed|not (exist|found|valid)|invalid)": "IAM has not propagated a new "
    "role yet: run again, and check the role's trust policy if the error persists",
    r"free (ip )?addresses|not enough (free )?(ip )?address": _ADDRESSES,
    r"(cannot|can't|can not|unable to) (be )?(chang|modif|updat)|immutable": "This field is immutable: "
    "docs/kinds/EKSCluster.md lists the changes that require a new pool or a new cluster",
}
_INVALID = "AWS rejects a value: correct the field in the message in the manifest, or the variable of the role"
_VAGUE = {
    "AsgInstanceLaunchFailures": "EC2 did not start an instance: see the message and the activity of the Auto Scaling "
    "group, then run again",
    "InvalidParameter* InvalidRequest Validation*": _INVALID,
    "AutoScalingGroupInvalidConfiguration Client ClientError Ec2LaunchTemplateInvalidConfiguration LimitExceeded "
    "NodeCreationFailure OperationNotPermitted Other Unknown UnsupportedOperation": "",
}


def _bare_code(code: str) -> str:
    """Return a code without its namespace and without `Exception`. Services use both inconsistently."""
    return code.rpartition("#")[2].rstrip(".").removesuffix("Exception").removesuffix("Fault")


HINTS = Hints(_CODES, _TEXTS, _VAGUE, re.compile(r"\b[A-Z][A-Za-z0-9]*[a-z][A-Z][A-Za-z0-9.]*"), _bare_code)


def hint_for(code: str, message: str) -> str:
    """Return the hint for the code and the message of an error or a health issue; "" for an unknown code.

    A hint is a sentence without a full stop."""
    code = _bare_code(code)
    hint = HINTS.of_vague(code, message)
    return (HINTS.of_code(code) or "") if hint is None else hint
