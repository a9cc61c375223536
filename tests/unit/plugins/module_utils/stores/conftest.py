# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The build of the sample fleet that tests of stores share."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.stores.sample_builds import settings


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build folder of the sample. To be copied, not changed."""
    folder = tmp_path_factory.mktemp("built") / "build"
    build.build(settings(folder))
    return folder
