#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.kubeconfig."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeconfig
short_description: Write kubeconfigs of a ServiceAccount
version_added: 0.1.0
description:
  - Creates a kubeconfig file for each cluster that logs in as a ServiceAccount, so that runs have its permissions only.
    The token in it expires.
  - A file is written again when its token is about to expire, or when the server, its certificate or the account has
    changed.
options:
  folder:
    description:
      - The folder of the files C(NAME.kubeconfig); that of O(control) is C(control.kubeconfig). Only their owner can
        read them.
      - A missing folder is created.
    type: path
    required: true
  account:
    description: The name of the ServiceAccount, on each of the clusters.
    type: str
    required: true
  namespace:
    description: Its namespace.
    type: str
    default: modelplane-system
  duration:
    description:
      - The requested lifetime of tokens in seconds, at least 600. Servers have their own limit (24 or 48 hours in
        clouds), and may issue a token with a shorter one.
    type: int
    default: 86400
  renew_before:
    description: Seconds before its expiry after which a token is renewed.
    type: int
    default: 28800
  parts:
    description:
      - The clusters for which files are written. The control cluster is read for Secrets in any case, when O(control)
        is given.
    type: list
    elements: str
    choices: [clusters, control]
    default: [clusters, control]
extends_documentation_fragment:
  - modelplane.fleet.clusters
requirements:
  - PyYAML
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: No token is created and no file is written.
  diff_mode:
    support: none
    description: The files are secret.
  idempotent:
    support: full
    description: A file whose token does not expire soon is not changed.
"""

EXAMPLES = r"""
- name: Write a kubeconfig with the permissions of the fleet only
  modelplane.fleet.kubeconfig:
    folder: ~/.kube/fleet
    account: modelplane-workload-cluster
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem-admin
"""

RETURN = r"""
clusters:
  description: The file of each workload cluster.
  returned: always
  type: dict
  contains:
    changed:
      description: Whether the file was written (in check mode, would be).
      type: bool
      returned: always
    failed:
      description: Whether the file could not be written.
      type: bool
      returned: always
    msg:
      description: The error; empty when there is none.
      type: str
      returned: always
    path:
      description: The file.
      type: str
      returned: when there is no error
    expires:
      description: The expiry of its token; empty in check mode for one that would be created.
      type: str
      returned: when there is no error
  sample:
    onprem:
      changed: true
      failed: false
      msg: ''
      path: /home/ops/.kube/fleet/onprem.kubeconfig
      expires: '2027-03-01T12:00:00Z'
control:
  description: The same for the control cluster.
  returned: when O(control) is given and O(parts) has it
  type: dict
  sample: {changed: false, failed: false, msg: '', path: /keys/control.kubeconfig, expires: '2027-03-01T12:00:00Z'}
failed_clusters:
  description: The workload clusters that failed, and V(control) for the control cluster.
  returned: always
  type: list
  elements: str
  sample: []
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, libraries, per_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.service_account import Account, ensure

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "folder": {"type": "path", "required": True},
        "account": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "modelplane-system"},
        "duration": {"type": "int", "default": 86400},
        "renew_before": {"type": "int", "default": 28800},
        "parts": {
            "type": "list",
            "elements": "str",
            "choices": ["clusters", "control"],
            "default": ["clusters", "control"],
        },
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    libraries.need(module, "PyYAML", "urllib3")
    duration, renew_before = module.params["duration"], module.params["renew_before"]
    if duration < 600 or not 0 <= renew_before < duration:
        module.fail_json(
            msg=f"duration is {duration} and must be at least 600, renew_before is {renew_before} and must be less"
        )

    def ensured(client: Client) -> dict[str, Any]:
        path = Path(module.params["folder"]) / f"{client.name}.kubeconfig"
        try:
            kubeconfig = ensure(
                client,
                Account(module.params["namespace"], module.params["account"]),
                path,
                seconds=duration,
                renew_before=renew_before,
                now=datetime.now(UTC),
                check_mode=module.check_mode,
            )
        except OSError as error:
            why = f"{path} cannot be written: {error.strerror}"
            raise ApiError(why, cluster=client.name, action="make a kubeconfig") from error
        return {"changed": kubeconfig.changed, "path": kubeconfig.path, "expires": kubeconfig.expires}

    with per_cluster.reported_arguments(module):
        per_cluster.end(module, per_cluster.on_each(module, ensured, _chosen(module.params)))


def _chosen(params: Mapping[str, Any]) -> dict[str, Connection]:
    """Return the connections of the chosen clusters, that of the control cluster as `control`."""
    connections = cluster_options.connections(params)
    control = cluster_options.control_connection(params)
    if control is not None and cluster_options.CONTROL in connections:
        raise cluster_options.ArgumentsError("clusters has one named control, whose file would be that of control")
    chosen = connections if "clusters" in params["parts"] else {}
    if control is not None and "control" in params["parts"]:
        chosen = {**chosen, cluster_options.CONTROL: control}
    return chosen


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
