# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Where IAM is stricter than moto, the policies that AWS brings along, and who the caller is."""

from __future__ import annotations

import datetime
import json
import re
from functools import cache
from typing import Any

from .account import ACCOUNT, OPERATIONS, Account, Principal, hexadecimal, lets_in, now
from .wire import Asked, AwsError

_KEPT = re.compile(
    r"AmazonEKS|AmazonEC2ContainerRegistry|AmazonEFSCSI|AmazonElasticFileSystem|AmazonEBSCSI|AmazonSSMManaged|AdministratorAccess$|ReadOnlyAccess$"
)
_PRINCIPALS = frozenset({"AWS", "Service", "Federated", "CanonicalUser"})


@cache
def _managed() -> dict[str, dict[str, Any]]:
    """Of the policies that AWS manages those that clusters use; all of them take moto a second at each reset."""
    from moto.iam.aws_managed_policies import aws_managed_policies_data

    return {name: data for name, data in json.loads(aws_managed_policies_data).items() if _KEPT.match(name)}


def bring_managed_policies(account: Account) -> None:
    """Put AWS' own policies into a fresh IAM."""
    from moto.iam.models import AWSManagedPolicy

    backend = account.iam
    policies = [
        AWSManagedPolicy.from_data(name, ACCOUNT, backend.region_name, data) for name, data in _managed().items()
    ]
    backend.aws_managed_policies = policies
    backend.managed_policies = {policy.arn: policy for policy in policies}


@OPERATIONS.before("iam", "CreateRole", "UpdateAssumeRolePolicy")
def check_trust(_account: Account, asked: Asked) -> None:
    text = asked.parameters.get("AssumeRolePolicyDocument", asked.parameters.get("PolicyDocument", ""))
    try:
        document = json.loads(text)
    except ValueError as error:
        raise AwsError("MalformedPolicyDocument", "This policy contains invalid Json") from error
    if not isinstance(document, dict) or document.get("Version") not in ("2012-10-17", "2008-10-17"):
        raise AwsError("MalformedPolicyDocument", "The policy must contain a valid version string")
    statements = document.get("Statement")
    for statement in statements if isinstance(statements, list) else [statements]:
        _check_statement(statement)


def _check_statement(statement: Any) -> None:
    if not isinstance(statement, dict) or statement.get("Effect") not in ("Allow", "Deny"):
        raise AwsError("MalformedPolicyDocument", "Missing required field Effect")
    if "Resource" in statement:
        raise AwsError("MalformedPolicyDocument", "Has prohibited field Resource")
    if "Action" not in statement:
        raise AwsError("MalformedPolicyDocument", "Missing required field Action")
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    if not all(action.startswith("sts:") for action in actions):
        raise AwsError("MalformedPolicyDocument", "AssumeRole policy may only specify STS AssumeRole actions.")
    principal = statement.get("Principal")
    if principal != "*" and (not isinstance(principal, dict) or not principal or set(principal) - _PRINCIPALS):
        raise AwsError("MalformedPolicyDocument", "Missing required field Principal")
    services = principal.get("Service", []) if isinstance(principal, dict) else []
    for service in [services] if isinstance(services, str) else services:
        if not re.fullmatch(r"[a-z0-9.-]+\.(amazonaws\.com|amazonaws\.com\.cn)", service):
            raise AwsError("MalformedPolicyDocument", f'Invalid principal in policy: "SERVICE":"{service}"')


@OPERATIONS.before("iam", "DeletePolicy")
def delete_policy(account: Account, asked: Asked) -> None:
    policy = account.iam.managed_policies.get(asked.parameters["PolicyArn"])
    if policy is None:
        return
    if any(policy.arn in role.managed_policies for role in account.iam.roles.values()):
        raise AwsError("DeleteConflict", "Cannot delete a policy attached to entities.")
    if len(policy.versions) > 1:
        raise AwsError(
            "DeleteConflict",
            "This policy has more than one version. Before you delete a policy, you must delete the policy's versions.",
        )


@OPERATIONS.answers("sts", "GetCallerIdentity")
def get_caller_identity(account: Account, asked: Asked) -> dict[str, Any]:
    principal = account.principals[asked.access_key]
    return {"UserId": principal.user_id, "Account": ACCOUNT, "Arn": principal.arn}


@OPERATIONS.answers("sts", "AssumeRole")
def assume_role(account: Account, asked: Asked) -> dict[str, Any]:
    """Keys of a session, if the role exists and lets somebody of an account of AWS assume it."""
    arn, session = asked.parameters["RoleArn"], asked.parameters["RoleSessionName"]
    caller = account.principals[asked.access_key]
    role = account.role(arn)
    if role is None or not lets_in(role, ACCOUNT):
        raise AwsError(
            "AccessDenied", f"User: {caller.arn} is not authorized to perform: sts:AssumeRole on resource: {arn}"
        )
    key, secret, token = f"ASIA{hexadecimal(16).upper()}", hexadecimal(32), hexadecimal(32)
    user = {
        "AssumedRoleId": f"AROADOUBLEOFAWS00000:{session}",
        "Arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/{role.name}/{session}",
    }
    account.principals[key] = Principal(user["Arn"], user["AssumedRoleId"], secret, arn, token)
    ends = now() + datetime.timedelta(seconds=asked.parameters.get("DurationSeconds", 3600))
    keys = {"AccessKeyId": key, "SecretAccessKey": secret, "SessionToken": token, "Expiration": ends}
    return {"Credentials": keys, "AssumedRoleUser": user}
