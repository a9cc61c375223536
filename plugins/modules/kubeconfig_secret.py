#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.kubeconfig_secret."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kubeconfig_secret
short_description: A Secret on the control cluster with the kubeconfig of a workload cluster
version_added: 0.1.0
description:
  - Writes a kubeconfig that reaches a cluster just as the modules of this collection do into a Secret on the control
    cluster, where others may look for it. It names neither files nor programs.
  - A token of EKS or GKE is made for it and ends soon, after 15 minutes at EKS. Every run writes a new one. The modules
    of this collection do not need it, they make their own.
  - The values go from one server to the other and into no result, file or message.
options:
  name:
    description: The name of the Secret.
    type: str
    required: true
  namespace:
    description: Its namespace, which has to be there.
    type: str
    default: modelplane-system
  key:
    description: The key that holds the kubeconfig.
    type: str
    default: kubeconfig
  state:
    description: V(absent) removes the Secret. No entry of O(clusters) is needed for that.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.clusters
requirements:
  - PyYAML
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: Nothing is written or removed.
  diff_mode:
    support: none
    description: What is written is secret.
  idempotent:
    support: full
    description: A new token is written in each run, and is no change by itself.
notes:
  - O(clusters) has exactly one entry here, and O(control) is needed.
  - A Secret without the label C(app.kubernetes.io/managed-by=modelplane.fleet) is not touched.
seealso:
  - module: modelplane.fleet.cluster_kubeconfig
"""

EXAMPLES = r"""
- name: Publish how a cluster of EKS is reached
  modelplane.fleet.kubeconfig_secret:
    name: eks-us-west-kubeconfig-ef123
    clusters:
      - name: eks-us-west
        eks: {cluster: modelplane-system-eks-us-west-eks-03b8e, region: us-west-2}
    control: {kubeconfig: keys/control.kubeconfig}
"""

RETURN = r"""
secret:
  description: Where the Secret is.
  returned: success
  type: dict
  sample: {namespace: modelplane-system, name: eks-us-west-kubeconfig-ef123, key: kubeconfig}
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils import cluster_arguments, libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import Object, entries, text
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import Source, documents
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import kubeconfig_file
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, NotFound

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_arguments.CLUSTERS,
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "default": "modelplane-system"},
        "key": {"type": "str", "default": "kubeconfig", "no_log": False},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    libraries.need(module, "PyYAML", "kubernetes")
    place = {key: module.params[key] for key in ("namespace", "name", "key")}
    try:
        given = cluster_arguments.control_connection(module.params)
        if given is None:
            raise cluster_arguments.ArgumentsError("control is missing: it is where the Secret is")
        with connect(given, write_cache=not module.check_mode) as control:
            changed = _present(module, control) if module.params["state"] == "present" else _absent(module, control)
    except cluster_arguments.ArgumentsError as error:
        module.fail_json(msg=str(error))
    except (ApiError, AccessError) as error:
        hint = f". {error.hint}" if isinstance(error, AccessError) and error.hint else ""
        module.fail_json(msg=f"{error}{hint}")
    module.exit_json(changed=changed, secret=place)


def _present(module: AnsibleModule, control: Client) -> bool:
    connections = list(cluster_arguments.connections(module.params).values())
    if len(connections) != 1:
        raise cluster_arguments.ArgumentsError(f"clusters has {len(connections)} entries: give one, which it is of")
    live = _ours(module, control)
    with connect(connections[0], control, write_cache=not module.check_mode) as client:
        kubeconfig = kubeconfig_file.kubeconfig_of(client.name, client.target())
    there = _read(text(live, "data", module.params["key"])) if live else {}
    if not module.check_mode:
        try:
            control.apply(_secret(module, kubeconfig), force=True)
        except NotFound:
            raise ApiError(
                f"there is no namespace {module.params['namespace']}",
                cluster=control.name,
                action="write a kubeconfig",
                hint="Run the playbook control_plane first, which brings it along",
            ) from None
    return _without_token(there) != _without_token(kubeconfig)


def _absent(module: AnsibleModule, control: Client) -> bool:
    live = _ours(module, control)
    if live is not None and not module.check_mode:
        control.delete("v1", "Secret", module.params["name"], module.params["namespace"])
    return live is not None


def _ours(module: AnsibleModule, control: Client) -> Object | None:
    """The Secret, or None; raises ApiError when it is somebody else's."""
    namespace, name = module.params["namespace"], module.params["name"]
    live = control.get("v1", "Secret", name, namespace)
    if live is not None and text(live, "metadata", "labels", names.MANAGED_BY_LABEL) != names.MANAGED_BY:
        raise ApiError(
            f"Secret {namespace}/{name} is there without the label {names.MANAGED_BY_LABEL}={names.MANAGED_BY}",
            cluster=control.name,
            action="write a kubeconfig",
            hint="Remove it, or give the label to it if it may be overwritten",
        )
    return live


def _secret(module: AnsibleModule, kubeconfig: Mapping[str, Any]) -> Object:
    value = base64.b64encode(to_yaml(dict(kubeconfig)).encode("utf-8")).decode("ascii")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": module.params["name"],
            "namespace": module.params["namespace"],
            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
        },
        "type": "Opaque",
        "data": {module.params["key"]: value},
    }


def _read(value: str) -> Mapping[str, Any]:
    """A kubeconfig out of a Secret; nothing when it is none."""
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return {}
    read = list(documents(Source("kubeconfig", data)))
    found = read[0].value if len(read) == 1 and not read[0].problems else None
    return found if isinstance(found, Mapping) else {}


def _without_token(kubeconfig: Mapping[str, Any]) -> dict[str, Any]:
    users = [{key: value for key, value in user.items() if key != "user"} for user in entries(kubeconfig, "users")]
    return {**kubeconfig, "users": users}


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
