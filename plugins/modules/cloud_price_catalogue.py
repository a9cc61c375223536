#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.cloud_price_catalogue."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cloud_price_catalogue
short_description: Write the node prices of a cloud to the price catalog
version_added: 0.1.0
description:
  - Queries a cloud for the prices of all instance types that node pools of InferenceClusters use, and writes the prices
    to the price catalog. Plans use these prices to estimate costs.
  - Replaces prices of the same instance type, location and purchase option. Keeps all other prices, including prices
    that users wrote. Comments in the file are lost.
  - In AWS these are on-demand prices by region (Price List API, GetProducts) and spot prices by zone (EC2,
    DescribeSpotPriceHistory), for Linux. These APIs do not contain the prices of Capacity Blocks.
  - In Google Cloud these are on-demand and spot prices by region (Cloud Billing Catalog API). A price is the sum of the
    prices of vCPUs, memory and GPUs. The supported machine types are A2, A3 High, A3 Mega and G2. Prices of local SSDs
    are not included.
  - The prices are list prices, which can differ from your contract.
options:
  resources:
    description: Files, directories and glob patterns with the manifests of the fleet.
    type: list
    elements: path
    required: true
  chdir:
    description: The base directory of relative paths in O(resources) and O(path).
    type: path
  path:
    description: The price catalog. It is created if it does not exist.
    type: path
    required: true
  currency:
    description: The currency of a new catalog. An existing catalog keeps its currency.
    type: str
    default: USD
extends_documentation_fragment:
  - modelplane.fleet.clouds
attributes:
  check_mode:
    support: full
    description: Queries the prices, and writes nothing.
  diff_mode:
    support: full
    description: Shows the catalog before and after.
  idempotent:
    support: partial
    description: Each entry contains the date of the price, so the catalog changes with the date.
notes:
  - O(region) is not needed, because the module queries prices for the regions of the clusters.
seealso:
  - module: modelplane.fleet.build
"""

EXAMPLES = r"""
- name: Write AWS prices
  modelplane.fleet.cloud_price_catalogue:
    provider: eks
    profile: billing
    resources: [manifests/]
    path: prices.yaml

- name: Write Google Cloud prices
  modelplane.fleet.cloud_price_catalogue:
    provider: gke
    project: fleet-prod
    resources: [manifests/]
    path: prices.yaml
"""

RETURN = r"""
machines:
  description: The instance types with queried prices, and their regions.
  returned: success
  type: list
  elements: str
  sample: [g6.xlarge in us-west-2]
missing:
  description: The instance types without a price, with the reason. The module also warns about each of them.
  returned: success
  type: list
  elements: str
  sample:
    - "a4-highgpu-8g in us-central1: the SKUs of its family are not known; those of a2-*, g2-* are"
"""

from datetime import UTC, datetime
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.manifests import (
    RESOURCES,
    failures,
    prepare,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.registry import BACKENDS, arguments
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import BY_NAME
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs, prices

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **arguments(),
        **RESOURCES,
        "path": {"type": "path", "required": True},
        "currency": {"type": "str", "default": "USD"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    prepare(module)
    params = module.params
    backend, provider = BACKENDS[params["provider"]], BY_NAME[params["provider"]].source
    with failures(module):
        loaded = fleet_inputs.read_manifests(params["resources"])
        if loaded.errors:
            raise fleet_inputs.ManifestError(loaded.errors)
        try:
            done = prices.update(
                params["path"],
                loaded.resources,
                provider,
                lambda machines, currency: backend.quotes(module, machines, currency),
                params["currency"],
                datetime.now(UTC).strftime("%Y-%m-%d"),
                check_mode=module.check_mode,
            )
        except CloudError as error:
            module.fail_json(msg=str(error))
            raise
    for line in done.missing:
        module.warn(f"no price: {line}")
    result: dict[str, Any] = {
        "changed": done.changed,
        "machines": [f"{machine.name} in {machine.region}" for machine in done.machines],
        "missing": list(done.missing),
    }
    if module._diff:
        header = params["path"]
        result["diff"] = {
            "before_header": header,
            "after_header": header,
            "before": done.before,
            "after": done.after,
        }
    module.exit_json(**result)


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
