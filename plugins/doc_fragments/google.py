# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for the login to Google Cloud. The argument spec is in `module_utils/google/session.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that talk to Google Cloud."""

    DOCUMENTATION = r"""
options:
  project:
    description:
      - The ID of the project. Without it, that of E(GOOGLE_CLOUD_PROJECT) or of the credentials.
    type: str
  credentials_file:
    description:
      - A file with credentials, such as the key of a service account or the configuration of workload identity
        federation (C(external_account)).
      - Without it, the file that E(GOOGLE_APPLICATION_CREDENTIALS) names, that of
        C(gcloud auth application-default login), or the metadata server of the machine or pod that this runs on.
    type: path
  endpoints:
    description:
      - Base URLs of services that are not reached at their public ones, as with Private Service Connect.
      - Keys are V(compute), V(container), V(iam), V(serviceusage), V(cloudresourcemanager), V(file) and
        V(cloudbilling); values are such as C(https://container.googleapis.com), without the version of the API.
    type: dict
    default: {}
  ca_file:
    description: A file with the certificates that those of Google have to come from, as behind a proxy that opens TLS.
    type: path
requirements:
  - google-auth >= 2.30
  - urllib3 >= 2.2.1, and certifi
notes:
  - The proxy that E(HTTPS_PROXY) names is used, but for hosts that E(NO_PROXY) names and for the metadata server.
author:
  - The modelplane.fleet authors (@modelplane)
"""
