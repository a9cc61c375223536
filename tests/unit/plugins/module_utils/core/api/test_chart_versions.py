# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Versions of charts in documents, which become arguments of Helm."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import InvalidResource, parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import CHART_VERSION_WORDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.serving_stack import StackVersions
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import fields_of
from ansible_collections.modelplane.fleet.tests.hostile import ARGUMENTS

FIELDS = [
    ("InferenceGateway", "spec.traefik.version"),
    *(("ServingStack", f"spec.versions.{field.wire}") for field in fields_of(StackVersions).values()),
]


@pytest.mark.parametrize(("resource", "path"), FIELDS)
def test_what_is_no_version_is_refused(minimal: dict[str, Any], change: Any, resource: str, path: str) -> None:
    for version in (*ARGUMENTS, "1", "1.2", "^1.2.3", ">=1.2.3", "1.2.3 || 2.0.0", "01.2.3", "latest"):
        with pytest.raises(InvalidResource) as caught:
            parse(change(minimal[resource], {path: version}))
        assert {problem.path for problem in caught.value.problems} == {path}, version
        if 0 < len(version) <= 32:
            assert any(CHART_VERSION_WORDS in problem.message for problem in caught.value.problems), version


@pytest.mark.parametrize(("resource", "path"), FIELDS)
@pytest.mark.parametrize("version", ["0.4.0", "v1.8.1", "1.0.0-rc.1", "v1.0.0-alpha-2+build.5", "10.20.30"])
def test_versions_are_taken(minimal: dict[str, Any], change: Any, resource: str, path: str, version: str) -> None:
    parse(change(minimal[resource], {path: version}))
