# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.collection_version`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: collection_version
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Installed version of a collection
description:
  - Searches the paths from which Ansible loads collections. Use it to check for a missing collection, because a play
    with an action of a missing collection fails before it can report which collection to install.
options:
  _input:
    description: The name of the collection.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Check the installed version
  ansible.builtin.assert:
    that: "'kubernetes.core' | modelplane.fleet.collection_version is version('6.2.0', '>=')"
"""

RETURN = r"""
_value:
  description: The version. V(0) if the collection is not installed or has no version.
  type: str
  returned: always
  sample: 11.4.0
"""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

_NONE = "0"


def collection_version(name: Any) -> str:
    """Return the version of an installed collection."""
    if not isinstance(name, str) or name.count(".") != 1:
        raise AnsibleFilterError("modelplane.fleet.collection_version: the input must be the name of a collection")
    try:
        package = import_module(f"ansible_collections.{name}")
    except ImportError:
        return _NONE
    folder = Path(next(iter(package.__path__)))
    # A collection that was installed has the first, a checkout the second.
    manifest, galaxy = folder / "MANIFEST.json", folder / "galaxy.yml"
    if manifest.is_file():
        information = json.loads(manifest.read_text(encoding="utf-8")).get("collection_info") or {}
    elif galaxy.is_file():
        information = yaml.safe_load(galaxy.read_text(encoding="utf-8")) or {}
    else:
        information = {}
    return str(information.get("version") or _NONE)


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"collection_version": collection_version}
