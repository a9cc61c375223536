#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.kubeconfig_secret."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeconfig_secret
short_description: Keep the kubeconfig of a cluster in a Secret on the control cluster
version_added: 0.1.0
description:
  - Writes a Secret on the control cluster with a kubeconfig that connects to one cluster in the same way as the modules
    of this collection, for programs on the control cluster.
  - The kubeconfig contains the credentials themselves and refers to no files or programs. A token of a cloud is renewed
    with each run, as it expires (in some clouds after 15 minutes). A new token alone is reported as RV(renewed), not as
    a change.
  - A missing namespace is created. A Secret without the label
    C(app.kubernetes.io/managed-by=modelplane.fleet), or with the label C(modelplane.ai/cluster) of another cluster, is
    neither changed nor deleted, and fails the task.
options:
  secret:
    description: Where the kubeconfig is kept.
    type: dict
    required: true
    suboptions:
      namespace:
        description: Namespace of the Secret.
        type: str
        required: true
      name:
        description: Name of the Secret.
        type: str
        required: true
      key:
        description: The key that holds the kubeconfig.
        type: str
        default: kubeconfig
  account_key:
    description:
      - A Secret on the control cluster with the key of a service account of the cloud that the cluster is in, as the
        role of that cloud writes it. The token in the kubeconfig is then one of that account, which may have fewer
        permissions than the credentials of this run.
    type: dict
    aliases: [google_key]
    suboptions:
      namespace:
        description: Namespace of the Secret.
        type: str
        required: true
      name:
        description: Name of the Secret.
        type: str
        required: true
      key:
        description: The key of the Secret that holds the key file.
        type: str
        default: private_key
  labels:
    description:
      - Labels of the Secret, besides C(app.kubernetes.io/managed-by).
      - With C(modelplane.ai/cluster), a Secret of another cluster is refused.
    type: dict
    default: {}
  state:
    description:
      - V(absent) removes the Secret. No cluster is needed for that.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.clusters
requirements:
  - PyYAML
  - The Python packages of the cloud, for O(account_key)
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description:
      - Nothing is written, and no token is created. The cluster need not exist while the Secret does not.
  diff_mode:
    support: full
    description: Labels, servers and certificates are shown, and no credentials.
  idempotent:
    support: full
    description: The token is renewed with each run, which is reported as RV(renewed) and not as a change.
notes:
  - O(clusters) has exactly one entry here, and O(control) is needed.
seealso:
  - module: modelplane.fleet.cluster_kubeconfig
"""

EXAMPLES = r"""
- name: Publish the kubeconfig of a cluster
  modelplane.fleet.kubeconfig_secret:
    control: {}
    clusters: "{{ ['us-west'] | modelplane.fleet.connections(hostvars) }}"
    secret: {namespace: modelplane-system, name: us-west-kubeconfig-df709}
    labels: {modelplane.ai/cluster: us-west}

- name: Publish the kubeconfig of a cluster in a cloud, with the token of its own service account
  modelplane.fleet.kubeconfig_secret:
    control: {}
    clusters: "{{ ['us-central'] | modelplane.fleet.connections(hostvars) }}"
    secret: {namespace: modelplane-system, name: us-central-kubeconfig-50da7}
    account_key: {namespace: modelplane-system, name: us-central-sa-key-34b1d}
    labels: {modelplane.ai/cluster: us-central}

- name: Remove it
  modelplane.fleet.kubeconfig_secret:
    control: {}
    secret: {namespace: modelplane-system, name: us-west-kubeconfig-df709}
    state: absent
"""

RETURN = r"""
secret:
  description: Where the kubeconfig is, as O(secret).
  returned: success
  type: dict
  sample: {namespace: modelplane-system, name: us-west-kubeconfig-df709, key: kubeconfig}
renewed:
  description: Whether only the credentials were renewed (in check mode, would be).
  returned: success
  type: bool
  sample: true
server:
  description: The API server, without parts of its URL that may be secret; empty where it is not known.
  returned: when O(state=present)
  type: str
  sample: https://us-west.example:6443
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, connections, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import kubeconfig_secret
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import SecretRef, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "secret": connections.secret_option("kubeconfig", required=True),
        # The second name is an older one.
        "account_key": connections.secret_option("private_key", aliases=["google_key"]),
        "labels": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    libraries.need(module, "PyYAML", "urllib3")
    params = module.params
    try:
        control_options = cluster_options.control_connection(params)
        if control_options is None:
            raise cluster_options.ArgumentsError("control is missing: the Secret is on the control cluster")
        with connect(control_options, write_cache=not module.check_mode) as control:
            outcome = _written(module, control)
    except cluster_options.ArgumentsError as error:
        module.fail_json(msg=str(error))
    except (ApiError, AccessError) as error:
        hint = f". {error.hint}" if isinstance(error, AccessError) and error.hint else ""
        module.fail_json(msg=f"{error}{hint}")
    module.exit_json(
        changed=outcome.changed,
        renewed=outcome.renewed,
        secret=params["secret"],
        diff={"before": outcome.before, "after": outcome.after},
        **({"server": outcome.server} if params["state"] == "present" else {}),
    )


def _written(module: AnsibleModule, control: Client) -> kubeconfig_secret.Written:
    params = module.params
    secret_reference = SecretRef(**params["secret"])
    labels = {str(key): str(value) for key, value in params["labels"].items()}
    if params["state"] == "absent":
        return kubeconfig_secret.remove(control, secret_reference, labels, check_mode=module.check_mode)
    clusters = list(cluster_options.connections(params).values())
    if len(clusters) != 1:
        raise cluster_options.ArgumentsError(f"clusters has {len(clusters)} entries: give one")
    key = SecretRef(**params["account_key"]) if params["account_key"] else None
    with connect(clusters[0], control, write_cache=not module.check_mode) as cluster:
        return kubeconfig_secret.ensure(
            control, cluster, secret_reference, labels, check_mode=module.check_mode, account_key=key
        )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
