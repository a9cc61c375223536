# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Default downloads have a version: no branch, and no tag that moves with each release."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.images import in_object, reference
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror import FLEET_IMAGES

ROOT = Path(__file__).parents[2]
MOVING = re.compile(r"(latest|main|master|head|stable|edge|nightly|dev|devel|rolling|canary)(-.*)?", re.IGNORECASE)
FOLDERS = ("docs", "extensions", "inventories", "playbooks", "roles")
COMMIT = re.compile(r"[0-9a-f]{40}|v?[0-9]+\.[0-9]+.*")
OWN = {
    # Repositories of the reader, whose branch is what is deployed.
    "docs/examples/gitops/argocd",
    "docs/examples/gitops/flux",
    # Where links of the documentation lead to.
    "docs/docsite/links.yml",
}
NO_IMAGES = ("docker.io/library/probe:latest",)
"""The image of an object that the API server only tries, so no node pulls it."""


def documents() -> Iterator[tuple[str, Any]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.y*ml")):
            name = path.relative_to(ROOT).as_posix()
            if not any(name.startswith(each) for each in OWN):
                loader = type("Loader", (yaml.SafeLoader,), {})
                loader.add_multi_constructor("!", lambda *_: None)  # type: ignore[attr-defined]
                for value in yaml.load_all(path.read_text(encoding="utf-8"), Loader=loader):
                    yield name, value


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(each)


def wrong_images(value: Any) -> list[str]:
    images = [reference(image) for image in in_object(value)]
    return [
        str(image)
        for image in images
        if image and not image.digest and MOVING.fullmatch(image.tag) and str(image) not in NO_IMAGES
    ]


def wrong_sources(value: Any) -> list[str]:
    """Collections, charts and repositories that are given by branch, or without a version."""
    found = []
    for each in mappings(value):
        version = str(each.get("version", each.get("targetRevision", "")))
        from_git = each.get("type") == "git" or "targetRevision" in each
        if from_git and not COMMIT.fullmatch(version):
            found.append(f"{each.get('name', each.get('repoURL'))}: {version}")
    return found


@pytest.mark.parametrize("name", FLEET_IMAGES)
def test_default_images_have_a_version(name: str) -> None:
    image = reference(FLEET_IMAGES[name])
    assert image
    assert image.digest or re.search(r"\d+\.\d+", image.tag)
    assert not MOVING.fullmatch(image.tag)


def test_what_files_name_has_a_version() -> None:
    found = [(name, *wrong_images(value), *wrong_sources(value)) for name, value in documents()]
    assert len(found) > 100
    assert [each for each in found if len(each) > 1] == []


@pytest.mark.parametrize(
    "value",
    [
        {"image": "nginx"},
        {"spec": {"containers": [{"image": "ghcr.io/a/b:latest"}]}},
        {"egressImage": "docker.io/envoyproxy/envoy:dev"},
        {"collections": [{"name": "https://a.example/b.git", "type": "git", "version": "main"}]},
        {"collections": [{"name": "https://a.example/b.git", "type": "git"}]},
        {"source": {"repoURL": "https://a.example/b.git", "targetRevision": "HEAD"}},
    ],
)
def test_what_moves_is_found(value: Any) -> None:
    assert wrong_images(value) + wrong_sources(value)


def test_the_execution_environment_has_this_release() -> None:
    definition = yaml.safe_load((ROOT / "extensions/awx/execution-environment/execution-environment.yml").read_text())
    (collection,) = definition["dependencies"]["galaxy"]["collections"]
    assert collection["version"] == yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    assert re.search(r":\d+\.\d+", definition["images"]["base_image"]["name"])
