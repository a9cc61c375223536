# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tokens of clusters, as an API server has them reviewed."""

from __future__ import annotations

import base64
import urllib.request
from typing import Any

import boto3
from ansible_collections.modelplane.fleet.tests.aws.account import Account
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from botocore.config import Config
from botocore.signers import RequestSigner


def _token(client: Any, cluster: str, header: str = "x-k8s-aws-id", action: str = "GetCallerIdentity") -> str:
    """A token as EKS has them, made with botocore."""
    signer: RequestSigner = client._request_signer
    request = {
        "method": "GET",
        "url": f"https://sts.us-west-2.amazonaws.com/?Action={action}&Version=2011-06-15",
        "body": {},
        "headers": {header: cluster},
        "context": {},
    }
    url = signer.generate_presigned_url(request, region_name="us-west-2", expires_in=60, operation_name="")
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def test_token_reviews(aws: Double, account: Account) -> None:
    sts = aws.client("sts")
    review = aws.token_review(_token(sts, "one"))
    assert review["status"]["error"] == "the token is for none of the clusters in us-west-2"
    account.cluster()
    review = aws.token_review(_token(sts, "one"))
    assert (review["apiVersion"], review["kind"]) == ("authentication.k8s.io/v1", "TokenReview")
    assert review["status"]["authenticated"] is True
    assert "system:masters" in review["status"]["user"]["groups"]
    assert aws.token_review(_token(sts, "one"), "one")["status"]["authenticated"] is True
    assert aws.token_review(_token(sts, "one"), "two")["status"]["error"] == "the token is for cluster one"
    for token, message in (
        ("x", "does not begin with"),
        ("k8s-aws-v1.!", "not base64url"),
        ("k8s-aws-v1.aHR0cHM6Ly9leGFtcGxlLmNvbS8", "not one of STS"),
        (_token(sts, "one", header="x-other"), "not host and x-k8s-aws-id"),
        (_token(sts, "one", action="GetSessionToken"), "GetSessionToken, not GetCallerIdentity"),
        (_token(sts, "two"), "for none of the clusters"),
    ):
        status = aws.token_review(token)["status"]
        assert status["authenticated"] is False
        assert message in status["error"]


def test_tokens_of_others(aws: Double, account: Account) -> None:
    """The creator of a cluster is its administrator; others need an access entry."""
    account.cluster(accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})
    arn = account.role("fleet", "ec2.amazonaws.com")
    keys = aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="session")["Credentials"]
    session = boto3.session.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"], "us-west-2")
    token = _token(session.client("sts"), "one")
    assert "nor has an access entry" in aws.token_review(token)["status"]["error"]
    key = {"clusterName": "one", "principalArn": arn}
    account.eks.create_access_entry(**key, kubernetesGroups=["readers"])
    assert aws.token_review(token)["status"]["user"]["groups"] == ["readers", "system:authenticated"]
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    account.eks.associate_access_policy(**key, policyArn=policy, accessScope={"type": "cluster"})
    assert "system:masters" in aws.token_review(token)["status"]["user"]["groups"]
    unknown = boto3.session.Session("AKIAIOSFODNN7OTHER", "secret", region_name="us-west-2")
    assert aws.token_review(_token(unknown.client("sts"), "one"))["status"]["error"] == "the access key is unknown"


def test_presigned_questions_are_answered(aws: Double) -> None:
    """STS answers the URL of a token with the principal that signed it."""
    url = aws.client("sts").generate_presigned_url("get_caller_identity")
    with urllib.request.urlopen(url) as answer:
        assert "arn:aws:iam::123456789012:user/moto" in answer.read().decode()


def test_own_answers_are_held_against_the_models(account: Account) -> None:
    """The fixture checks that nothing invalid was reported, also in the answers to a walk over all reads."""
    account.cluster()
    account.nodes()
    account.eks.describe_addon_versions()
    account.eks.list_updates(name="one")
    assert Config(retries={"total_max_attempts": 1}).retries == {"total_max_attempts": 1}
