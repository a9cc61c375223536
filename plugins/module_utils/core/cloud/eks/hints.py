# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints for errors of AWS, and for health issues of a node group, an addon or a cluster.

Codes are those of the services' own models (EKS: NodegroupIssueCode, AddonIssueCode, ClusterIssueCode, ErrorCode)
and of the lists of error codes of EC2, IAM, STS, EFS and Elastic Load Balancing.
"""

from __future__ import annotations

import re

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.hints import (
    Codes,
    Texts,
    among,
    of_code,
    of_text,
    of_words,
)

_QUOTA = "ask for a higher quota in Service Quotas"
_CAPACITY = (
    "AWS has no such instance free in this zone: add zones to the pool, take another instance type, or reserve a "
    "Capacity Block and give its id as capacityBlock.capacityReservationId; running again goes on from here"
)
_VCPU = (
    f"The account's vCPU quota for this family of instances is used up: {_QUOTA} (EC2, Running On-Demand instances of "
    "the family), or lower minNodeCount and nodeCount of the pool"
)
_BLOCK_INACTIVE = (
    "The Capacity Block is not active: wait until its start, or give the id of one that is active; until then the "
    "pool needs nodeCount 0 and minNodeCount 0"
)
_BLOCK_FULL = (
    "The reservation has no free instance left: lower nodeCount and maxNodeCount to what it holds, or stop what else "
    "runs in it"
)
_BLOCK_WRONG = (
    "Give the id of a reservation of this account and region whose instance type and zone are those of the pool, as "
    "`aws ec2 describe-capacity-reservations` shows it"
)
_ZONE = (
    "EKS or the instance type is not offered in this zone: take a zone that the message or `aws ec2 "
    "describe-instance-type-offerings --location-type availability-zone` names"
)
_RIGHTS = (
    "Give the identity that runs this the right named in the message; docs/eks.md has a policy with all rights that "
    "are needed, and a service control policy or permissions boundary may take one away"
)
_LOGIN = "Log in again (for example `aws sso login`), or give access keys and a session token that have not ended"
_KEYS = (
    "Check the access key, the secret key and the session token, and whether the region is enabled for the account "
    "and of the same partition, as AWS refuses keys in other regions"
)
_THROTTLED = "AWS limits the rate of calls: run again later, or provision fewer clusters at once (forks)"
_AGAIN = "The error is on the side of AWS: run again, and check the AWS Health Dashboard if it stays"
_ADDRESSES = (
    "The subnet has too few free addresses: give the EKSCluster larger spec.networking.subnetCidrs (which needs a new "
    "cluster), or lower maxNodeCount of its pools"
)
_DRIFT = (
    "Something that the cluster needs was removed outside of this collection: run provision, which creates it again"
)
_REPLACE = (
    "This cannot be changed in place: give the pool a new name, so that a new one is created and the old one deleted"
)
_PODS = (
    "A pod could not be moved off a node: check PodDisruptionBudgets and pods that do not end (`kubectl get "
    "pdb,pods -A`), then run again"
)
_NETWORK = (
    "The nodes did not join the cluster: check the system log of an instance, the route of the private subnets "
    "to the NAT gateway, and the node role and security groups; running again creates the node group again"
)
_KMS = (
    "Check the key that encrypts the cluster in AWS KMS: it has to exist and be enabled, and the cluster role may "
    "use it"
)
_CONFLICT = (
    "Something in the cluster manages the same fields: check what the message names, remove or adapt it, and run again"
)

# Codes without a trailing `Exception`; a trailing `*` stands for any rest.
_BY_CODE: Codes = (
    (("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity"), _CAPACITY),
    (("VcpuLimitExceeded", "InstanceLimitExceeded"), _VCPU),
    (
        ("MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow"),
        f"The account's quota for Spot instances is used up: {_QUOTA} (EC2, All Spot Instance Requests of the family)",
    ),
    (("ReservationCapacityExceeded", "InsufficientReservedInstanceCapacity"), _BLOCK_FULL),
    (
        ("CapacityBlockNotActive", "InvalidCapacityReservationState", "IncorrectCapacityReservationState"),
        _BLOCK_INACTIVE,
    ),
    (("InvalidCapacityReservationId*", "CapacityReservation*"), _BLOCK_WRONG),
    (("UnsupportedAvailabilityZone", "Unsupported", "AvailabilityZonesMismatch"), _ZONE),
    (
        ("InvalidInstanceType", "Ec2InstanceTypeDoesNotExist"),
        "Correct instanceType: there is none of this name in this region",
    ),
    (
        ("AddressLimitExceeded", "InsufficientAddressCapacity"),
        "All Elastic IP addresses of the region are in use, and a cluster needs one: release one that is not used, or "
        f"{_QUOTA} (EC2, EC2-VPC Elastic IPs)",
    ),
    (
        ("VpcLimitExceeded",),
        f"The region has as many VPCs as the account may have, and a cluster needs one: remove one, or {_QUOTA} (VPCs "
        "per Region)",
    ),
    (
        ("NatGatewayLimitExceeded",),
        f"The zone has as many NAT gateways as the account may have: remove one, or {_QUOTA} (NAT gateways per "
        "Availability Zone)",
    ),
    (
        ("InternetGatewayLimitExceeded",),
        f"The region has as many internet gateways as the account may have: remove one, or {_QUOTA} (Internet gateways "
        "per Region)",
    ),
    (
        ("SubnetLimitExceeded", "RouteTableLimitExceeded", "RouteLimitExceeded", "*SecurityGroupLimitExceeded"),
        f"The VPC has as many of these as the account may have: {_QUOTA} (Amazon VPC)",
    ),
    (
        ("RulesPerSecurityGroupLimitExceeded", "NetworkInterfaceLimitExceeded", "EniLimitReached"),
        f"The account may have no more of these: {_QUOTA} (Amazon VPC)",
    ),
    (
        ("FileSystemLimitExceeded", "AccessPointLimitExceeded", "ThroughputLimitExceeded"),
        f"The account may have no more of these: remove some that are not used, or {_QUOTA} (Amazon EFS)",
    ),
    (
        ("IamLimitExceeded",),
        "The account may have no more roles, policies or instance profiles: remove some that are not used, or "
        f"{_QUOTA} (IAM)",
    ),
    (("Ec2LaunchTemplateMaxLimitExceeded",), f"Remove launch templates that are not used, or {_QUOTA} (EC2)"),
    (
        ("Ec2LaunchTemplateVersionMaxLimitExceeded",),
        "Remove old versions of the launch template (`aws ec2 delete-launch-template-versions`)",
    ),
    (("Throttling*", "Throttled*", "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded"), _THROTTLED),
    (("IamThrottling", "AutoScalingGroupRateLimitExceeded", "PriorRequestNotComplete", "SlowDown"), _THROTTLED),
    (
        ("ResourceLimitExceeded", "LimitExceeded", "ServiceQuotaExceeded", "*LimitExceeded"),
        f"A quota of the account is used up: remove what is not used, or {_QUOTA} for what the message names",
    ),
    (("InsufficientFreeAddresses*", "NoFreeAddressesInSubnet", "IpNotAvailable", "IpAddressInUse"), _ADDRESSES),
    (("AccessDenied", "UnauthorizedOperation", "Client.UnauthorizedOperation", "Forbidden"), _RIGHTS),
    (("AccessDeniedWithMessage", "NotAuthorized", "AuthorizationError", "OperationNotPermitted"), _RIGHTS),
    (("ExpiredToken", "RequestExpired", "TokenRefreshRequired", "ExpiredTokenId"), _LOGIN),
    (
        ("InvalidClientTokenId", "UnrecognizedClient", "AuthFailure", "InvalidAccessKeyId", "SignatureDoesNotMatch"),
        _KEYS,
    ),
    (("IncompleteSignature", "MissingAuthenticationToken", "InvalidSignature", "InvalidToken"), _KEYS),
    (
        (
            "OptInRequired",
            "AutoScalingGroupOptInRequired",
            "SubscriptionRequired",
            "RegionDisabled",
            "Ec2ServiceNotSubscribed",
        ),
        "Enable the region or the service for this account (AWS account settings, AWS Regions), or take another region",
    ),
    (
        ("PendingVerification",),
        "AWS still verifies the account for this region: wait for its mail, or take another region",
    ),
    (
        ("StsRegionalEndpointDisabled",),
        "Activate the regional STS endpoint of the region (IAM, Account settings, Security Token Service)",
    ),
    (
        ("DependencyViolation",),
        "Something in the VPC still uses this, such as a load balancer, network interface or security group that a "
        "controller or a person made: remove what is not the collection's, then run again",
    ),
    (
        ("ResourceInUse", "FileSystemInUse", "DeleteConflict", "InUse", "VolumeInUse"),
        "Something still uses this, or another change of it is under way: run again when that is over",
    ),
    (
        ("ConflictException", "Conflict", "IncorrectState", "IncorrectInstanceState", "InvalidState"),
        "Run again when the change that is under way is over",
    ),
    (
        ("IncorrectFileSystemLifeCycleState", "IncorrectMountTargetState"),
        "Run again when the change that is under way is over",
    ),
    (
        ("MountTargetConflict",),
        "The file system has a mount target of another network in this zone: remove that one, then run again",
    ),
    (
        ("EntityAlreadyExists", "*AlreadyExists", "InvalidGroup.Duplicate", "*.Duplicate"),
        "Something of this name that is not the collection's exists already: rename or remove it",
    ),
    (
        ("MalformedPolicyDocument", "InvalidPolicy"),
        "The message names the statement that IAM refuses: check whether the region's partition is right",
    ),
    (("NodeCreationFailure", "ClusterUnreachable"), _NETWORK),
    (("IamNodeRoleNotFound", "IamInstanceProfileNotFound", "IamRoleNotFound"), _DRIFT),
    (
        ("AutoScalingGroupNotFound", "Ec2SecurityGroupNotFound", "Ec2SubnetNotFound", "Ec2LaunchTemplateNotFound"),
        _DRIFT,
    ),
    (
        ("SourceEc2LaunchTemplateNotFound", "SubnetNotFound", "SecurityGroupNotFound", "VpcNotFound", "VpcIdNotFound"),
        _DRIFT,
    ),
    (
        ("Ec2LaunchTemplateVersionMismatch", "AutoScalingGroupInvalidConfiguration"),
        "The Auto Scaling group was changed outside of EKS: undo that, or give the pool a new name, so that it is "
        "created again",
    ),
    (
        ("Ec2SubnetInvalidConfiguration", "Ec2SubnetMissingIpv6Assignment"),
        "The subnet was changed outside of this collection: run provision again, which sets it right",
    ),
    (
        ("Ec2LaunchTemplateInvalidConfiguration",),
        "Check what the message names in the launch template; provision writes a new version where it differs",
    ),
    (("Ec2SubnetListTooLong",), _REPLACE),
    (
        ("Ec2SecurityGroupDeletionFailure", "Ec2LaunchTemplateDeletionFailure"),
        "Remove what still uses it, then run again",
    ),
    (("NodeTerminationFailure", "PodEvictionFailure"), _PODS),
    (
        ("AutoScalingGroupInstanceRefreshActive",),
        "Wait until the refresh of the Auto Scaling group is over, or cancel it, then run again",
    ),
    (
        ("AmiIdNotFound",),
        "The image of the nodes is gone: update the node group, or take a Kubernetes version that EKS still supports",
    ),
    (
        ("KubernetesLabelInvalid",),
        "Correct the label that the message names: pool names and accelerator types become values of labels",
    ),
    (("UnsupportedVersion",), "Take a Kubernetes version that `aws eks describe-cluster-versions` lists"),
    (("Kms*",), _KMS),
    (("AddonPermissionFailure",), "Check the role in the addon's pod identity association, and its policies"),
    (("AddonSubscriptionNeeded",), "Subscribe to the addon in AWS Marketplace first"),
    (
        ("InsufficientNumberOfReplicas",),
        "Its pods have no node to run on or do not start: check the system node group and the pods in kube-system",
    ),
    (("ConfigurationConflict", "AdmissionRequestDenied", "K8sResourceNotFound"), _CONFLICT),
    (
        ("UnsupportedAddonModification",),
        "Give another version of the addon in eks_cluster_addons, or leave it out to take the default",
    ),
    (("NoCredentials", "NoCredentialProviders"), _KEYS),
    (
        (
            "InternalFailure",
            "InternalError",
            "InternalServerError",
            "Server",
            "ServiceUnavailable",
            "Unavailable",
            "ServerInternal",
        ),
        _AGAIN,
    ),
    (("DependencyTimeout", "ResourcePropagationDelay", "RequestTimeout*"), _AGAIN),
)

# Texts of codes that say little by themselves. The first that is found counts.
_BY_TEXT: Texts = (
    (r"deletion protection", "Turn off its deletion protection where it is no longer needed, then run again"),
    (r"capacity.?block.*(not (yet )?active|not (yet )?started|has expired|has ended)", _BLOCK_INACTIVE),
    (r"(not (yet )?active|expired).*capacity.?block", _BLOCK_INACTIVE),
    (r"reservation.*(not have sufficient|no available|insufficient)", _BLOCK_FULL),
    (r"capacity.?reservation.*(does not exist|not found|not exist|mismatch|does not match)", _BLOCK_WRONG),
    (r"sufficient .*capacity|insufficient.*capacity", _CAPACITY),
    (r"vcpu (capacity|limit)|vcpu.*bucket", _VCPU),
    (r"(instance type|targeted).*(not supported|unsupported).*(zone|region)", _ZONE),
    (
        r"unsupported kubernetes (minor )?version|kubernetes version.*(not supported|unsupported)",
        "Take a Kubernetes version that `aws eks describe-cluster-versions` lists",
    ),
    (r"(not authorized|access ?denied|unauthorized)", _RIGHTS),
    (
        r"role.*(could not be assumed|cannot be assumed|not (exist|found|valid)|invalid)",
        "IAM takes a while to know a new role everywhere: run again; if it stays, check the role's trust policy",
    ),
    (r"free (ip )?addresses|not enough (free )?(ip )?address", _ADDRESSES),
    (
        r"(cannot|can't|can not|unable to) (be )?(chang|modif|updat)|immutable",
        "This cannot be changed in place: docs/eks.md says what needs a new pool or a new cluster",
    ),
)

# Codes that say that something did not work, and the message why.
_VAGUE = (
    "AsgInstanceLaunchFailures",
    "AutoScalingGroupInvalidConfiguration",
    "Client",
    "ClientError",
    "Ec2LaunchTemplateInvalidConfiguration",
    "InvalidParameter*",
    "InvalidRequest",
    "LimitExceeded",
    "NodeCreationFailure",
    "OperationNotPermitted",
    "Other",
    "Unknown",
    "UnsupportedOperation",
    "ValidationError",
    "Validation",
)
_LAUNCH = (
    "EC2 did not start an instance: the message says why, more is in the activity of the Auto Scaling group; running "
    "again goes on"
)
_INVALID = (
    "AWS does not take a value: correct the field that the message is about in the manifest, or the role's variable"
)
_VAGUE_HINTS = {"AsgInstanceLaunchFailures": _LAUNCH}


def hint_for(code: str, message: str) -> str:
    """Return what to do about the error: a sentence without a full stop, or nothing for a code that is not known.

    `code` is an error code of an answer, or that of a health issue; `message` is the text that came with it. Where a
    code merely says that something went wrong, the message decides: it often names the code of the service beneath.
    """
    code = _bare(code)
    if among(code, _VAGUE):
        hint = _of_message(message)
        if hint:
            return hint
    known = of_code(_BY_CODE, code)
    if known:
        return known
    if code in _VAGUE_HINTS:
        return _VAGUE_HINTS[code]
    return _INVALID if among(code, _VAGUE) and code.startswith(("Invalid", "Validation")) else ""


def _bare(code: str) -> str:
    """A code as the tables have it: the services do not agree on `Exception` and on a name space before a dot."""
    return code.rpartition("#")[2].removesuffix("Exception").removesuffix("Fault")


def _of_message(message: str) -> str:
    """Return the hint for the first code that the message names, else for what it says."""
    words = re.findall(r"\b[A-Z][A-Za-z0-9]*[a-z][A-Z][A-Za-z0-9.]*", message)
    return of_words(_BY_CODE, _VAGUE, (_bare(word.rstrip(".")) for word in words)) or of_text(_BY_TEXT, message)
