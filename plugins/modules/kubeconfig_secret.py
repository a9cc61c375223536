#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.kubeconfig_secret."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeconfig_secret
short_description: Store the kubeconfig of a cluster on the control cluster
version_added: 0.1.0
description:
  - Writes a Secret on the control cluster with a kubeconfig that connects to one cluster in the same way as the modules
    of this collection, for clients on the control cluster.
  - The kubeconfig contains the credentials and does not refer to files or executables. Each run renews a cloud token,
    because it expires (in some clouds after 15 minutes). If only the token changes, the module reports RV(renewed), and
    no change.
  - A missing namespace is created. The module fails without changes if the Secret does not have the label
    C(app.kubernetes.io/managed-by=modelplane.fleet), or has the label C(modelplane.ai/cluster) of another cluster.
options:
  account_key:
    description:
      - A Secret on the control cluster with a service account key of the cluster's cloud, as written by the role of
        that cloud. The token in the kubeconfig then belongs to that service account, which can have fewer permissions
        than the credentials of this run.
    type: dict
    aliases: [google_key]
    suboptions:
      namespace:
        description: The namespace of the Secret.
        type: str
        required: true
      name:
        description: The name of the Secret.
        type: str
        required: true
      key:
        description: The key in the Secret that contains the service account key file.
        type: str
        default: private_key
  state:
    description:
      - V(present) writes the Secret. V(absent) removes the Secret, and needs no cluster.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.control_secrets.kubeconfig
  - modelplane.fleet.clusters
requirements:
  - PyYAML
  - The Python packages of the cloud, for O(account_key)
attributes:
  check_mode:
    support: full
    description:
      - Writes nothing, and creates no token. If the Secret does not exist, the cluster does not need to exist.
  diff_mode:
    support: full
    description: Shows labels, servers and certificates, but no credentials.
  idempotent:
    support: full
    description: Each run renews the token, and reports it as RV(renewed) and not as a change.
notes:
  - O(clusters) must contain exactly one cluster, and O(control) is required.
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

- name: Publish a kubeconfig with a service account token
  modelplane.fleet.kubeconfig_secret:
    control: {}
    clusters: "{{ ['us-central'] | modelplane.fleet.connections(hostvars) }}"
    secret: {namespace: modelplane-system, name: us-central-kubeconfig-50da7}
    account_key: {namespace: modelplane-system, name: us-central-sa-key-34b1d}
    labels: {modelplane.ai/cluster: us-central}

- name: Remove the kubeconfig
  modelplane.fleet.kubeconfig_secret:
    control: {}
    secret: {namespace: modelplane-system, name: us-west-kubeconfig-df709}
    state: absent
"""

RETURN = r"""
secret:
  description: The Secret that contains the kubeconfig, as O(secret).
  returned: success
  type: dict
  sample: {namespace: modelplane-system, name: us-west-kubeconfig-df709, key: kubeconfig}
renewed:
  description: Whether only the credentials were renewed or, in check mode, would be renewed.
  returned: success
  type: bool
  sample: true
server:
  description: The URL of the API server, without parts that might be secret. Empty if it is unknown.
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
    """Run the module with its arguments, and exit with its result."""
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
