# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter that plans a GKE cluster, as a function."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.modelplane.fleet.plugins.filter import gke_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import Options, plan
from ansible_collections.modelplane.fleet.tests.unit.plugins.filter.test_filters import tagged, types_of
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import eks
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import gke

planned = gke_plan.FilterModule().filters()["gke_plan"]


def test_plans_are_plain() -> None:
    given = {"labels": {"cost": 7}}
    found = planned(tagged(gke()), tagged("my-project"), tagged("production"), tagged(given))
    assert found == plan(gke(), "my-project", "production", Options(labels={"cost": "7"}))
    assert types_of(found) == {dict, list, str, int, bool}
    assert planned(gke(), "my-project") == plan(gke(), "my-project")
    assert planned(gke(project="its-own"), None)["project"] == "its-own"


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "text": (("gke-us-central",), "the input must be of kind GKECluster"),
    "options": ((gke(), "p", "default", ["labels"]), "the options a mapping"),
    "unknown option": ((gke(), "p", "default", {"label": {}}), "options.label is not known. Did you mean labels?"),
    "labels": ((gke(), "p", "default", {"labels": ["a"]}), "options.labels must be a mapping"),
    "dra_labels": ((gke(), "p", "default", {"dra_labels": True}), "options.dra_labels is not known"),
    "another kind": ((eks(), "my-project"), "this GKECluster cannot be built:\nkind: Must be GKECluster"),
    "nothing": (({}, "my-project"), "this GKECluster cannot be built"),
    "no project": ((gke(),), "spec.project: Is not given"),
    "errors": ((gke(region="texas"), "my-project"), "spec.region: Is no name of a region of Google Cloud"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_planned(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(AnsibleFilterError) as refused:
        planned(*given)
    assert message in str(refused.value)
