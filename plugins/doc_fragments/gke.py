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
          - A cluster of Google Kubernetes Engine. It needs the Python package C(google-auth).
          - With O(clusters[].server) and O(clusters[].ca_text) or O(clusters[].ca_file), Google is not asked where the
            cluster is.
          - Kubeconfigs that run C(gke-gcloud-auth-plugin) or C(gcloud) for a token need the package too.
        type: dict
        suboptions:
          project:
            description: The project of the cluster; that of the credentials by default.
            type: str
          location:
            description: Its region or zone.
            type: str
            required: true
          cluster:
            description: Name of the cluster at GKE.
            type: str
            required: true
          credentials_file:
            description:
              - A key file, or another file that google-auth reads; the application default credentials by default.
            type: path
          endpoint:
            description: URL of the GKE API where it is not the public one.
            type: str
          ca_file:
            description: A file with the certificates that those of Google's APIs have to come from.
            type: path
"""
