#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cluster_kubeconfig."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_kubeconfig
short_description: Write a kubeconfig file for other tools
version_added: 0.1.0
description:
  - Writes a kubeconfig file that connects to one cluster in the same way as the modules of this collection, for Helm
    and other tools.
  - The file contains the credentials and does not refer to other files or executables. The module creates a cloud token
    for the file, which does not renew it. Run the module again before each use, because tokens of some clouds expire
    after 15 minutes.
  - Never reports a change, because the file is temporary and depends only on the module's arguments.
options:
  path:
    description:
      - The path of the file. Only its owner can read it.
      - A missing parent directory is created.
    type: path
    required: true
  state:
    description:
      - V(present) writes the file. V(absent) removes the file, and needs no cluster.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - modelplane.fleet.clusters
requirements:
  - PyYAML
attributes:
  check_mode:
    support: full
    description: No file is written or removed.
  diff_mode:
    support: none
    description: The file contains credentials.
  idempotent:
    support: full
    description: The module never reports a change.
notes:
  - O(clusters) must contain exactly one cluster.
seealso:
  - module: modelplane.fleet.kubeconfig
"""

EXAMPLES = r"""
- name: Write a kubeconfig file for Helm
  modelplane.fleet.cluster_kubeconfig:
    path: /run/user/1000/west.kubeconfig
    clusters:
      - name: west
        secret: {namespace: modelplane-system, name: west-kubeconfig}
    control: {}

- name: Remove the file
  modelplane.fleet.cluster_kubeconfig:
    path: /run/user/1000/west.kubeconfig
    state: absent
"""

RETURN = r"""
path:
  description: The path of the file.
  returned: success
  type: str
  sample: /run/user/1000/west.kubeconfig
server:
  description: The URL of the API server, without parts that might be secret.
  returned: when O(state=present)
  type: str
  sample: https://west.example:6443
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, libraries, per_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.http.errors import shown_url
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import kubeconfig_file
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **cluster_options.CLUSTERS,
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "PyYAML", "urllib3")
    path = Path(module.params["path"])
    try:
        if module.params["state"] == "present":
            module.exit_json(changed=False, path=str(path), server=_written(module, path))
        if not module.check_mode:
            kubeconfig_file.remove(path)
    except OSError as error:
        doing = "written" if module.params["state"] == "present" else "removed"
        module.fail_json(msg=f"{path} cannot be {doing}: {error.strerror}")
    except cluster_options.ArgumentsError as error:
        module.fail_json(msg=str(error))
    except (ApiError, AccessError) as error:
        hint = f". {error.hint}" if isinstance(error, AccessError) and error.hint else ""
        module.fail_json(msg=f"{error}{hint}")
    module.exit_json(changed=False, path=str(path))


def _written(module: AnsibleModule, path: Path) -> str:
    """Write the file and return the URL of its server."""
    connections = list(cluster_options.connections(module.params).values())
    if len(connections) != 1:
        raise cluster_options.ArgumentsError(
            f"clusters has {len(connections)} entries: give one, as one kubeconfig is written"
        )
    with (
        per_cluster.control_client(module) as control,
        connect(connections[0], control, write_cache=not module.check_mode) as client,
    ):
        target = client.target()
        if not module.check_mode:
            kubeconfig_file.write(path, kubeconfig_file.kubeconfig_of(client.name, target))
        return shown_url(target.server)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
