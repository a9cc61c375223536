# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Only the rooms of a cloud name it, and the registries: read from the text of every file that runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.providers import LOGINS, PROVIDERS
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import CLOUDS

ROOT = Path(__file__).parents[2]
FOLDERS = ("plugins", "roles", "playbooks")
ENDINGS = (".py", ".yml", ".yaml", ".j2")
NAMES = re.compile(r"(?<![a-z])(eks|gke|aws|gcp|google|amazon)", re.IGNORECASE)

# Of a cloud itself. A path that ends with a slash is a folder.
ROOMS = (
    "plugins/module_utils/aws/",
    "plugins/module_utils/google/",
    *(f"plugins/module_utils/core/cloud/{cloud.name}/" for cloud in CLOUDS),
    *(f"plugins/doc_fragments/{cloud.name}.py" for cloud in CLOUDS),
    *(f"roles/{cloud.name}_cluster/" for cloud in CLOUDS),
    *(f"playbooks/files/classes/{cloud.name}/" for cloud in CLOUDS),
)
ALLOWED = {
    "plugins/module_utils/core/cloud/registry.py": "the registry of the core",
    "plugins/module_utils/cloud/providers.py": "the registry of what works with the APIs of clouds",
    "plugins/module_utils/core/api/": "the kinds, which are fields and values that users write",
    "roles/control_plane/files/crds/": "made from the kinds",
    "plugins/module_utils/_aws.py": "the guard of a client library",
    "plugins/module_utils/_google.py": "the guard of a client library",
    "plugins/doc_fragments/aws.py": "options of modules of one cloud",
    "plugins/doc_fragments/google.py": "options of modules of one cloud",
}
