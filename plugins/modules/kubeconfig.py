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
  - Makes, for each cluster, a kubeconfig file that logs in as a ServiceAccount, so that runs have its rights and no
    others. The token in it ends.
  - A file is written anew when its token is about to end, when the server, its certificate or the account is another
    one, and otherwise left as it is.
options:
  folder:
    description:
      - Where the files are written, as C(NAME.kubeconfig); that of O(control) is C(control.kubeconfig). Only their
        owner can read them.
      - The folder is made when it is not there.
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
      - For how many seconds a token is asked for, at least 600. Servers have a limit of their own (24 or 48 hours
        in clouds), and may give a shorter one.
    type: int
    default: 86400
  renew_before:
    description: How many seconds before its end a token is renewed.
    type: int
    default: 28800
  parts:
    description:
      - For what files are written. The control cluster is read for Secrets in any case, when O(control) is given.
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
    description: No token is made and no file written.
  diff_mode:
    support: none
    description: What is written is secret.
  idempotent:
    support: full
    description: A file whose token does not end soon stays as it is.
"""

EXAMPLES = r"""
- name: Log in with the rights of the fleet, and no more, from now on
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
      description: Whether there is no such file, as something went wrong.
      type: bool
      returned: always
    msg:
      description: What went wrong; empty when nothing did.
      type: str
      returned: always
    path:
      description: The file.
      type: str
      returned: when nothing went wrong
    expires:
      description: When its token ends; empty in check mode for one that would be made.
      type: str
      returned: when nothing went wrong
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
            msg=f"duration is {duration} and has to be at least 600, renew_before is {renew_before} and has to be less"
        )

    def bring_one(client: Client) -> dict[str, Any]:
        path = Path(module.params["folder"]) / f"{client.name}.kubeconfig"
        try:
            written = ensure(
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
        return {"changed": written.changed, "path": written.path, "expires": written.expires}

    with per_cluster.telling_arguments(module):
        per_cluster.end(module, per_cluster.on_each(module, bring_one, _wanted(module.params)))


def _wanted(params: Mapping[str, Any]) -> dict[str, Connection]:
    """The clusters whose files are asked for, the control cluster as `control`."""
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
