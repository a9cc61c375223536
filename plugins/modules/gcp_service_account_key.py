#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.gcp_service_account_key."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gcp_service_account_key
short_description: Store a Google Cloud service account key on the control cluster
version_added: 0.1.0
description:
  - Stores a valid key of a Google Cloud service account in a Secret on the control cluster.
  - Google Cloud returns the private part of a key only at its creation. The module keeps the key in the Secret while it
    exists in Google Cloud, is enabled, and has not expired. Otherwise the module creates a new key.
  - Deletes other keys of the account that are as old as the key in the Secret, or older, because an account can have at
    most ten keys.
  - Fails without changes if the description of the service account does not contain
    C(modelplane-ai-managed-by=modelplane-fleet). Also fails if the Secret does not have the label
    C(app.kubernetes.io/managed-by=modelplane.fleet), or has the label C(modelplane.ai/cluster) of another cluster.
options:
  email:
    description: The email address of the service account.
    type: str
    required: true
  state:
    description:
      - V(present) stores the key. V(absent) deletes the Secret, and deletes its key in Google Cloud.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.control_secrets.account_key
  - modelplane.fleet.google
  - modelplane.fleet.clusters.control
attributes:
  check_mode:
    support: full
    description: Sends no requests that change anything. The service account does not need to exist.
  diff_mode:
    support: full
    description: Shows key IDs and labels, and no secret values.
  idempotent:
    support: full
    description: A valid key is kept.
notes:
  - O(control) is required.
  - The organization policy C(iam.disableServiceAccountKeyCreation) prevents the creation of service account keys.
seealso:
  - module: modelplane.fleet.cloud_resources
  - module: modelplane.fleet.kubeconfig_secret
"""

EXAMPLES = r"""
- name: Store the service account key of a GKE cluster
  modelplane.fleet.gcp_service_account_key:
    project: fleet-prod
    email: modelplane-system-gke-us-1a2b3@fleet-prod.iam.gserviceaccount.com
    control: {}
    secret: {namespace: modelplane-system, name: gke-us-central-sa-key-ccbc7}
    labels: {modelplane.ai/cluster: gke-us-central}
"""

RETURN = r"""
secret:
  description: The Secret that contains the key, as O(secret).
  returned: success
  type: dict
  sample: {namespace: modelplane-system, name: gke-us-central-sa-key-ccbc7, key: private_key}
key_id:
  description: The ID of the key. In check mode, empty for a key that would be created.
  returned: when O(state=present)
  type: str
  sample: 0123456789abcdef0123456789abcdef01234567
"""

import datetime
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, connections, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import task
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.task import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Messages
from ansible_collections.modelplane.fleet.plugins.module_utils.google import session
from ansible_collections.modelplane.fleet.plugins.module_utils.google.account_keys import AccountKeys, Place
from ansible_collections.modelplane.fleet.plugins.module_utils.google.errors import GoogleError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import SecretRef, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **session.ARGUMENTS,
        "email": {"type": "str", "required": True},
        "secret": connections.secret_option("private_key", required=True),
        "labels": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "control": cluster_options.CLUSTERS["control"],
        **cluster_options.LIMITS,
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3", "PyYAML")
    params, client = module.params, session.client(module)

    def action(changes: Changes, _messages: Messages) -> dict[str, Any]:
        keys = AccountKeys(client, params["email"], params["project"] or "", changes)
        try:
            control_options = cluster_options.control_connection(params)
            if control_options is None:
                raise cluster_options.ArgumentsError("control is missing: the Secret is on the control cluster")
            with connect(control_options, write_cache=not module.check_mode) as control:
                return {"secret": params["secret"], **_done(keys, control)}
        except (ApiError, AccessError, cluster_options.ArgumentsError) as error:
            raise GoogleError(str(error), hint=error.hint if isinstance(error, AccessError) else "") from None

    def _done(keys: AccountKeys, control: Client) -> dict[str, Any]:
        labels = {str(key): str(value) for key, value in params["labels"].items()}
        key_place = Place(control, SecretRef(**params["secret"]), labels)
        if params["state"] == "absent":
            keys.remove(key_place)
            return {}
        return {"key_id": keys.ensure(key_place, datetime.datetime.now(datetime.UTC))}

    task.run(module, action)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
