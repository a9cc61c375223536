# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Service Quotas: the quotas that a cluster meets, at the values that a new account has unless a test sets others."""

from __future__ import annotations

from typing import Any

from .account import ACCOUNT, OPERATIONS, Account
from .wire import Asked, AwsError

# (service, code) -> name and default value.
DEFAULTS: dict[tuple[str, str], tuple[str, float]] = {
    ("ec2", "L-1216C47A"): ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 5.0),
    ("ec2", "L-417A185B"): ("Running On-Demand P instances", 0.0),
    ("ec2", "L-DB2E81BA"): ("Running On-Demand G and VT instances", 0.0),
    ("ec2", "L-0263D0A3"): ("EC2-VPC Elastic IPs", 5.0),
    ("vpc", "L-F678F1CE"): ("VPCs per Region", 5.0),
    ("vpc", "L-A4707A72"): ("Internet gateways per Region", 5.0),
    ("vpc", "L-FE5A380F"): ("NAT gateways per Availability Zone", 5.0),
    ("eks", "L-1194D53C"): ("Clusters", 100.0),
}


def _quota(account: Account, asked: Asked, service: str, code: str, default: bool) -> dict[str, Any]:
    name, value = DEFAULTS[service, code]
    return {
        "ServiceCode": service,
        "ServiceName": {"ec2": "Amazon Elastic Compute Cloud (Amazon EC2)", "vpc": "Amazon Virtual Private Cloud"}.get(
            service, "Amazon Elastic Kubernetes Service (Amazon EKS)"
        ),
        "QuotaArn": f"arn:aws:servicequotas:{asked.region}:{ACCOUNT}:{service}/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": value if default else account.quotas.get((service, code), value),
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
