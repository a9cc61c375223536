# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What manifests and the control cluster say of a fleet, for modules that ask for some kinds of resources."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ansible_collections.modelplane.fleet.plugins.module_utils import build, cluster_arguments
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observed import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, NotServed
from ansible_collections.modelplane.fleet.plugins.module_utils.module import fail
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule


def declared(module: AnsibleModule, kinds: Sequence[str]) -> tuple[list[Object], tuple[api.Resource, ...]]:
    """All resources of `kinds` on the control cluster (the argument `control`), if there is one, in wire form, and all
    that the manifests (`resources`) have, of any kind, which count where both have a name. What cannot be read fails
    the module."""
    loaded = build.read_manifests(module.params["resources"])
    if loaded.errors:
        fail(module, loaded.errors)
    live: list[Object] = []
    try:
        control = cluster_arguments.control_connection(module.params)
        if control is not None:
            with connect(control, write_cache=not module.check_mode) as client:
                for kind in kinds:
                    # A control cluster without the definitions of the fleet's kinds has none.
                    with contextlib.suppress(NotServed):
                        live += client.list(api.KINDS[kind].group_version(), kind).items
    except (ApiError, cluster_arguments.ArgumentsError, StoreError) as error:
        module.fail_json(msg=str(error))
    return live, loaded.resources
