# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.modules import gke_preflight_info
from ansible_collections.modelplane.fleet.plugins.plugin_utils.in_process import InProcess


class ActionModule(InProcess):
    module = gke_preflight_info
