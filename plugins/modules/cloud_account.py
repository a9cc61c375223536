#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_account."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_account
short_description: Record the quotas and capacity of cloud accounts for plans
version_added: 0.1.0
description:
  - Writes the account data that M(modelplane.fleet.cloud_preflight_info) returns to the observation file of the fleet.
    A plan that contacts no cloud can then reject node pools that exceed the quotas of an account.
  - The data of an account is kept until it is recorded again. All other content of the file is kept.
options:
  accounts:
    description: The accounts, as in RV(modelplane.fleet.cloud_preflight_info#module:observed).
    type: list
    elements: dict
    required: true
  clusters:
    description:
      - The cloud names of all clusters of the fleet in the cloud O(provider). Other clusters are omitted from the
        accounts of this cloud.
      - If unset, no cluster is omitted.
    type: list
    elements: str
  provider:
    description: The cloud of O(clusters).
    type: str
  path:
    description:
      - The observation file, for the option O(modelplane.fleet.build#module:observations). Only its owner can read it.
        It is created if it does not exist.
    type: path
    required: true
  chdir:
    description: The base directory of a relative O(path).
    type: path
requirements:
  - pydantic >= 2.10
  - PyYAML
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: Writes nothing.
  diff_mode:
    support: full
    description: Shows the accounts before and after.
  idempotent:
    support: partial
    description: Each account contains the date of its observation, so the file changes with the date.
seealso:
  - module: modelplane.fleet.cloud_preflight_info
  - module: modelplane.fleet.build
"""

EXAMPLES = r"""
- name: Check the account
  modelplane.fleet.cloud_preflight_info:
    provider: eks
    region: us-west-2
    plan: "{{ eks_cluster_object | modelplane.fleet.eks_plan }}"
  register: preflight

- name: Record the account
  modelplane.fleet.cloud_account:
    accounts: "{{ preflight.observed }}"
    path: .cache/observed.json
"""

RETURN = r"""
accounts:
  description: The accounts in the file or, in check mode, the accounts that would be in the file.
  returned: success
  type: list
  elements: dict
  sample:
    - provider: eks
      account: "123456789012"
      region: us-west-2
      observed: "2026-11-27"
      quotas: [{code: L-417A185B, name: Running On-Demand P instances, unit: vCPUs, limit: 96, observed: "2026-11-27"}]
      reservations: []
      offerings: []
      zones: []
      clusters: [{name: eks-us-west, pools: []}]
"""

from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import prepare
from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import Account, merged
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    ObservationError,
    accounts,
    accounts_wire,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.observations import update_accounts

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        "accounts": {"type": "list", "elements": "dict", "required": True},
        "clusters": {"type": "list", "elements": "str"},
        "provider": {"type": "str"},
        "path": {"type": "path", "required": True},
        "chdir": {"type": "path"},
    },
    "required_by": {"clusters": ("provider",)},
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    prepare(module)
    params = module.params
    fleet = None if params["clusters"] is None else {params["provider"]: params["clusters"]}
    try:
        seen = accounts({"accounts": params["accounts"]})
        previous_accounts, current_accounts = update_accounts(
            params["path"], lambda known: merged(known, seen, fleet), check_mode=module.check_mode
        )
    except (ObservationError, StoreError) as error:
        module.fail_json(msg=str(error))
        raise
    result: dict[str, Any] = {
        "changed": previous_accounts != current_accounts,
        "accounts": accounts_wire(current_accounts),
    }
    if module._diff:
        header = f"{params['path']}: accounts"
        result["diff"] = {
            "before_header": header,
            "after_header": header,
            "before": _text(previous_accounts),
            "after": _text(current_accounts),
        }
    module.exit_json(**result)


def _text(cloud_accounts: Sequence[Account]) -> str:
    return to_yaml({"accounts": accounts_wire(cloud_accounts)}) if cloud_accounts else ""


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
