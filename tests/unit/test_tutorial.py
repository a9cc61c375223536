# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The plans that docs/tutorial.md shows are those that its manifests lead to."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.plan import services_table, table
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings
from ansible_collections.modelplane.fleet.tests.checkout import ROOT

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
FLEET, SERVICE = (text for text in re.findall(r"^```yaml\n(.*?)^```$", TUTORIAL, re.M | re.S) if "apiVersion" in text)


def shown(lines: list[str]) -> None:
    """Fail unless the tutorial shows these lines, as `callback_result_format = yaml` prints them."""
    text = "\n".join(lines)
    assert text in TUTORIAL, f"docs/tutorial.md does not show\n{text}"


def test_the_tutorial_shows_what_happens(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    settings = Settings((str(tmp_path / "fleet.yaml"),), folder=str(tmp_path / "build"))
    shown(table(build(settings).plan))
    assert not build(settings).changes

    grown = FLEET.replace("replicas: 2", "replicas: 5")
    (tmp_path / "fleet.yaml").write_text(grown)
    shown(table(build(replace(settings, check_mode=True)).plan))

    (tmp_path / "fleet.yaml").write_text(grown.replace("nodeCount: 1", "nodeCount: 2", 1))
    shown(table(build(settings).plan))

    (tmp_path / "service.yaml").write_text(SERVICE)
    settings = replace(settings, resources=(*settings.resources, str(tmp_path / "service.yaml")))
    shown(services_table(build(settings).plan))

    drained = replace(settings, drain=("paris",))
    plan = build(drained).plan
    shown(table(plan))
    assert plan.warnings == (" ".join(re.findall(r"^\[WARNING\]: (.*?)^```$", TUTORIAL, re.M | re.S)[0].split()),)
    shown(table(build(settings).plan))
