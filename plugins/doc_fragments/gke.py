# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that work in the account, and of connections to clusters of Google Kubernetes Engine."""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.doc_fragments import google


class ModuleDocFragment:
    """Options of modules that work in the account, and of connections to clusters of Google Kubernetes Engine."""

    # Annotated, because ansible-test stops at assignments of anything but a literal.
    ACCOUNT: str = google.ModuleDocFragment.DOCUMENTATION
    # Indented for a list below `suboptions:` of an option.
    CONNECTION = r"""
      gke:
        description:
          - A Google Kubernetes Engine cluster. Requires the Python package C(google-auth).
          - With O(clusters[].server) and O(clusters[].ca_text) or O(clusters[].ca_file), the module does not query
            Google Cloud for the cluster's endpoint.
          - Kubeconfigs that run C(gke-gcloud-auth-plugin) or C(gcloud) for a token also require the package.
        type: dict
        suboptions:
          project:
            description: The project of the cluster. Defaults to the project of the credentials.
            type: str
          location:
            description: The region or zone of the cluster.
            type: str
            required: true
          cluster:
            description: The name of the GKE cluster.
            type: str
            required: true
          credentials_file:
            description:
              - A key file, or another file that google-auth supports. Defaults to the application default credentials.
            type: path
          endpoint:
            description: The URL of the GKE API, if it is not the public endpoint.
            type: str
          ca_file:
            description: A file with CA certificates for Google APIs.
            type: path
"""
