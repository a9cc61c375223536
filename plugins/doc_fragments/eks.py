# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that work in the account, and of connections to clusters of Amazon EKS."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.doc_fragments import aws


class ModuleDocFragment:
    """Options of modules that work in the account, and of connections to clusters of Amazon EKS."""

    # Annotated, because ansible-test stops at assignments of anything but a literal.
    ACCOUNT: str = aws.ModuleDocFragment.DOCUMENTATION
    # Indented for a list below `suboptions:` of an option.
    CONNECTION = r"""
      eks:
        description:
          - An Amazon EKS cluster, with the credentials that the AWS SDK finds. Requires the Python package C(boto3).
          - With O(clusters[].server) and O(clusters[].ca_text) or O(clusters[].ca_file), the module does not query AWS
            for the cluster's endpoint.
          - Kubeconfigs that run C(aws) or C(aws-iam-authenticator) for a token also require the package.
        type: dict
        suboptions:
          cluster:
            description: The name of the EKS cluster.
            type: str
            required: true
          region:
            description: The AWS region. Defaults to the region of the profile or of E(AWS_REGION).
            type: str
          profile:
            description: The AWS configuration profile.
            type: str
          role_arn:
            description: The ARN of a role to assume.
            type: str
          endpoint:
            description: The URL of the EKS API, if it is not the public endpoint of the region.
            type: str
"""
