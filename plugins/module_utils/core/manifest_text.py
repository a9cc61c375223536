# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A Kubernetes object as YAML text that every YAML reader takes the same way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils._yaml import Dumper, dump

# Plain texts that some reader would take for a number, a boolean or a date: YAML 1.1 and 1.2, go-yaml and PyYAML differ
# in what they resolve, so anything that could be one of these is quoted.
_AMBIGUOUS = re.compile(
    r"[-+.]?[0-9].*|[-+]?\.(inf|nan)|[-+]|~|=|<<|(y|n|yes|no|on|off|true|false|null)", re.IGNORECASE
)


class _ManifestDumper(Dumper):
    """Never writes anchors, keeps the order of keys, writes text of several lines as a block."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if "\n" in text:
        style = "|"
    elif _AMBIGUOUS.fullmatch(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _prepare() -> type[Any]:
    if hasattr(_ManifestDumper, "add_representer"):
        _ManifestDumper.add_representer(str, _represent_text)
    return _ManifestDumper


_DUMPER = _prepare()


def to_yaml(value: Mapping[str, Any]) -> str:
    """The object as YAML, keys in the order they have, without document markers. The same value gives the same text."""
    return dump(value, _DUMPER)
