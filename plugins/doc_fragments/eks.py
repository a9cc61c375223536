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
          - A cluster of Amazon EKS, with the credentials that the AWS SDK finds. It needs the Python package C(boto3).
          - With O(clusters[].server) and O(clusters[].ca_text) or O(clusters[].ca_file), AWS is not asked where the
            cluster is.
          - Kubeconfigs that run C(aws) or C(aws-iam-authenticator) for a token need the package too.
        type: dict
        suboptions:
          cluster:
            description: Name of the cluster at EKS.
            type: str
            required: true
          region:
            description: Its region; that of the profile or of E(AWS_REGION) by default.
            type: str
          profile:
            description: A profile of the AWS configuration.
            type: str
          role_arn:
            description: A role to assume first.
            type: str
          endpoint:
            description: URL of the EKS API where it is not the public one of the region.
            type: str
"""
