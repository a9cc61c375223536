#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.kubeconfig."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeconfig
short_description: Write kubeconfig files for a ServiceAccount
version_added: 0.1.0
description:
  - Writes a kubeconfig file for each cluster with a token of a ServiceAccount, so that runs have only the permissions
    of the ServiceAccount. The token expires.
  - Rewrites a file if its token is about to expire, or if the server, its certificate or the ServiceAccount has
    changed.
options:
  folder:
    description:
      - The directory of the files C(NAME.kubeconfig). The file of O(control) is C(control.kubeconfig). Only their owner
        can read them.
      - A missing directory is created.
    type: path
    required: true
  account:
    description: The name of the ServiceAccount on each cluster.
    type: str
    required: true
  namespace:
    description: The namespace of the ServiceAccount.
    type: str
    default: modelplane-system
  duration:
    description:
      - The requested lifetime of tokens in seconds, at least 600. API servers limit the lifetime (24 or 48 hours in
        clouds), and may issue a token with a shorter lifetime.
    type: int
    default: 86400
  renew_before:
    description: The minimum remaining lifetime of a token in seconds. A token with a shorter lifetime is renewed.
    type: int
    default: 28800
extends_documentation_fragment:
  - modelplane.fleet.clusters
  - modelplane.fleet.clusters.parts
requirements:
  - PyYAML
attributes:
  check_mode:
    support: full
    description: Creates no token, and writes no file.
  diff_mode:
    support: none
    description: The files contain credentials.
  idempotent:
    support: full
    description: A file is not changed if its token does not expire soon.
"""

EXAMPLES = r"""
- name: Write a kubeconfig file with fleet permissions
  modelplane.fleet.kubeconfig:
    folder: ~/.kube/fleet
    account: modelplane-workload-cluster
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem-admin
"""

RETURN = r"""
clusters:
  description: The file of each inference cluster.
  returned: always
  type: dict
  contains:
    changed:
      description: Whether the file was written or, in check mode, would be written.
      type: bool
      returned: always
    failed:
      description: Whether the file could not be written.
      type: bool
      returned: always
    msg:
      description: The error. Empty if the file was written.
      type: str
      returned: always
    path:
      description: The path of the file.
      type: str
      returned: when there is no error
    expires:
      description: The expiry of the token. In check mode, empty for a token that would be created.
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
  description: The file of the control cluster, with the fields of RV(clusters).
  returned: when O(control) is given and O(parts) contains V(control)
  type: dict
  sample: {changed: false, failed: false, msg: '', path: /keys/control.kubeconfig, expires: '2027-03-01T12:00:00Z'}
failed_clusters:
  description: The failed inference clusters, and V(control) for the control cluster.
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
    """Run the module with its arguments, and exit with its result."""
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
    """Return the connections of the chosen clusters. The control cluster has the name `control`."""
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
