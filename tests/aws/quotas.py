# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Service Quotas: the quotas that a cluster meets, and that they are held to.

The values are those of an account that was raised where GPUs are concerned, unless a test sets others.
"""

from __future__ import annotations

import re
from typing import Any

from .account import ACCOUNT, OPERATIONS, Account
from .wire import Asked, AwsError

# (service, code) -> name and default value.
DEFAULTS: dict[tuple[str, str], tuple[str, float]] = {
    ("ec2", "L-1216C47A"): ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 256.0),
    ("ec2", "L-417A185B"): ("Running On-Demand P instances", 2304.0),
    ("ec2", "L-DB2E81BA"): ("Running On-Demand G and VT instances", 768.0),
    ("ec2", "L-0263D0A3"): ("EC2-VPC Elastic IPs", 5.0),
    ("vpc", "L-F678F1CE"): ("VPCs per Region", 5.0),
    ("vpc", "L-A4707A72"): ("Internet gateways per Region", 5.0),
    ("vpc", "L-FE5A380F"): ("NAT gateways per Availability Zone", 5.0),
    ("eks", "L-1194D53C"): ("Clusters", 100.0),
}


# The families of instance types that count for a quota of vCPUs.
_VCPUS = {"L-417A185B": ("p",), "L-DB2E81BA": ("g", "vt"), "L-1216C47A": tuple("acdhimrtz")}


def value(account: Account, service: str, code: str) -> float:
    return account.quotas.get((service, code), DEFAULTS[service, code][1])


def vcpu_quota(instance_type: str) -> str | None:
    """The code of the quota that the vCPUs of an instance type count for, if any."""
    family = re.match(r"[a-z]+", instance_type)
    letters = family[0] if family else ""
    found = [code for code, families in _VCPUS.items() if letters in families]
    return found[0] if found else "L-1216C47A" if letters[:1] in "acdhimrtz" else None


@OPERATIONS.before("ec2", "CreateVpc")
def create_vpc(account: Account, asked: Asked) -> None:
    if len(account.region(asked.region).ec2.vpcs) >= value(account, "vpc", "L-F678F1CE"):
        raise AwsError("VpcLimitExceeded", "The maximum number of VPCs has been reached.")


@OPERATIONS.before("ec2", "AllocateAddress")
def allocate_address(account: Account, asked: Asked) -> None:
    if len(account.region(asked.region).ec2.addresses) >= value(account, "ec2", "L-0263D0A3"):
        raise AwsError("AddressLimitExceeded", "The maximum number of addresses has been reached.")


@OPERATIONS.before("ec2", "CreateInternetGateway")
def create_internet_gateway(account: Account, asked: Asked) -> None:
    if len(account.region(asked.region).ec2.internet_gateways) >= value(account, "vpc", "L-A4707A72"):
        raise AwsError("InternetGatewayLimitExceeded", "The maximum number of internet gateways has been reached.")


def _quota(account: Account, asked: Asked, service: str, code: str, default: bool) -> dict[str, Any]:
    name, usual = DEFAULTS[service, code]
    return {
        "ServiceCode": service,
        "ServiceName": {"ec2": "Amazon Elastic Compute Cloud (Amazon EC2)", "vpc": "Amazon Virtual Private Cloud"}.get(
            service, "Amazon Elastic Kubernetes Service (Amazon EKS)"
        ),
        "QuotaArn": f"arn:aws:servicequotas:{asked.region}:{ACCOUNT}:{service}/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": usual if default else value(account, service, code),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def _one(account: Account, asked: Asked, default: bool) -> dict[str, Any]:
    service, code = asked.parameters["ServiceCode"], asked.parameters["QuotaCode"]
    if (service, code) not in DEFAULTS:
        raise AwsError("NoSuchResourceException", f"The request failed because there is no quota {code} of {service}.")
    return {"Quota": _quota(account, asked, service, code, default)}


def _all(account: Account, asked: Asked, default: bool) -> dict[str, Any]:
    wanted = asked.parameters["ServiceCode"]
    return {
        "Quotas": [_quota(account, asked, service, code, default) for service, code in DEFAULTS if service == wanted]
    }


@OPERATIONS.answers("service-quotas", "GetServiceQuota")
def get_service_quota(account: Account, asked: Asked) -> dict[str, Any]:
    return _one(account, asked, default=False)


@OPERATIONS.answers("service-quotas", "GetAWSDefaultServiceQuota")
def get_default_quota(account: Account, asked: Asked) -> dict[str, Any]:
    return _one(account, asked, default=True)


@OPERATIONS.answers("service-quotas", "ListServiceQuotas")
def list_service_quotas(account: Account, asked: Asked) -> dict[str, Any]:
    return _all(account, asked, default=False)


@OPERATIONS.answers("service-quotas", "ListAWSDefaultServiceQuotas")
def list_default_quotas(account: Account, asked: Asked) -> dict[str, Any]:
    return _all(account, asked, default=True)
