# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The InferenceClasses that come with the collection, and the selectors of the examples."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import compile_selector

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "tests/data/manifests"
MEBIBYTE = re.compile(r"(\d+)Mi")

Class = Mapping[str, Any]


def folder(provider: str) -> Path:
    """Return where the classes of a provider are."""
    return ROOT / "playbooks/files/classes" / provider


def classes(provider: str) -> list[dict[str, Any]]:
    """The classes of a provider."""
    return [
        document
        for path in sorted(folder(provider).glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def devices(entry: Class) -> dict[str, dict[str, Any]]:
    """The devices of a class by their names."""
    return {device["name"]: device for device in entry["spec"]["devices"]}


def memory(entry: Class) -> int:
    """The memory of a GPU of a class in MiB."""
    match = MEBIBYTE.fullmatch(devices(entry)["gpu"]["capacity"]["memory"]["value"])
    assert match
    return int(match[1])


def matching(entries: Sequence[Class], expression: str) -> set[str]:
    """The models of GPU that a selector takes."""
    selector = compile_selector(expression)
    return {
        gpu["attributes"]["productName"]["string"]
        for gpu in (devices(entry)["gpu"] for entry in entries)
        if selector.evaluate(Device.from_wire(gpu)).match
    }


def _selectors(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("cel"), str):
            yield value["cel"]
        for entry in value.values():
            yield from _selectors(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _selectors(entry)


EXAMPLES = sorted(
    {
        expression
        for path in MANIFESTS.rglob("model-deployment*.yaml")
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
        for expression in _selectors(document)
        if "gpu.nvidia.com" in expression
    }
)
"""The selectors of all examples that ask for a GPU."""
