# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules for Google Cloud credentials. The argument spec is in `module_utils/google/session.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that access Google Cloud."""

    DOCUMENTATION = r"""
options:
  project:
    description:
      - The project ID. Defaults to E(GOOGLE_CLOUD_PROJECT) or the project of the credentials.
    type: str
  credentials_file:
    description:
      - A file with credentials, such as a service account key or the configuration of workload identity federation
        (C(external_account)).
      - If unset, the module uses the file in E(GOOGLE_APPLICATION_CREDENTIALS), the credentials of
        C(gcloud auth application-default login), or the metadata server of the instance or pod.
    type: path
  endpoints:
    description:
      - Base URLs of Google Cloud services without public endpoints, for example with Private Service Connect.
      - The keys are V(compute), V(container), V(iam), V(serviceusage), V(cloudresourcemanager), V(file) and
        V(cloudbilling). A value is a URL without an API version, such as C(https://container.googleapis.com).
    type: dict
    default: {}
  ca_file:
    description: A file with CA certificates for Google APIs, for example of a proxy that terminates TLS.
    type: path
requirements:
  - google-auth >= 2.30
  - urllib3 >= 2.2.1, and certifi
notes:
  - The proxy that E(HTTPS_PROXY) names is used, but for hosts that E(NO_PROXY) names and for the metadata server.
author:
  - The modelplane.fleet authors (@modelplane)
"""
