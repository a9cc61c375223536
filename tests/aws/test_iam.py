# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Policies of IAM."""

from __future__ import annotations

import json

import pytest
from ansible_collections.modelplane.fleet.tests.aws.account import Account, refused


@pytest.mark.parametrize("document", ["no JSON", "{}", '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow"}]}'])
def test_documents(account: Account, document: str) -> None:
    with refused("MalformedPolicyDocument"):
        account.iam.create_role(RoleName="r", AssumeRolePolicyDocument=document)
    with refused("MalformedPolicyDocument"):
        account.iam.create_policy(PolicyName="p", PolicyDocument=document)


def test_policies_in_use(account: Account) -> None:
    account.role("r", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy")
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}]}
    arn = account.iam.create_policy(PolicyName="p", PolicyDocument=json.dumps(document))["Policy"]["Arn"]
    account.iam.attach_role_policy(RoleName="r", PolicyArn=arn)
    with refused("DeleteConflict", "attached"):
        account.iam.delete_policy(PolicyArn=arn)
    with refused("DeleteConflict"):
        account.iam.delete_role(RoleName="r")
    account.iam.detach_role_policy(RoleName="r", PolicyArn=arn)
    account.iam.create_policy_version(PolicyArn=arn, PolicyDocument=json.dumps(document))
    with refused("DeleteConflict", "version"):
        account.iam.delete_policy(PolicyArn=arn)
    account.iam.delete_policy_version(PolicyArn=arn, VersionId="v2")
    account.iam.delete_policy(PolicyArn=arn)


def test_a_policy_that_is_attached_twice_counts_once(account: Account) -> None:
    account.role("node", "ec2.amazonaws.com", "AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodePolicy")
    arn = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
    assert account.iam.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"] == 1
    account.iam.detach_role_policy(RoleName="node", PolicyArn=arn)
    assert account.iam.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"] == 0
