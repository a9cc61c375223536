# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Every call that is made for a GKECluster, against Google's own description of its APIs."""

from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.diff import diff
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import Options, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.requests import (
    Request,
    create,
    delete,
    find,
    siblings,
    updates,
)
from ansible_collections.modelplane.fleet.tests.gcp import documents
from ansible_collections.modelplane.fleet.tests.gcp.discovery import api
from ansible_collections.modelplane.fleet.tests.packages import UnavailableError
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    PROJECT,
    gke,
    gpu,
    resource,
    returned,
    system,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.test_diff import (
    EVERYTHING,
    UPDATED,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.test_plan import (
    OF_CLUSTER,
    SETTINGS,
)


def calls() -> list[Request]:
    cluster = gke(gpu(diskSizeGb=200), system(zones=["us-central1-b"]), project="other-project")
    settings = [gke(gpu(**settings)) for settings, _becomes in SETTINGS.values()]
    settings += [gke(**settings) for settings, _becomes in OF_CLUSTER.values()]
    every = [
        *plan(gke(), PROJECT)["resources"],
        *plan(cluster, options=Options(labels={"team": "ml"}))["resources"],
        *(entry for each in settings for entry in plan(each, PROJECT)["resources"]),
    ]
    made = [call(entry) for entry in every for call in (find, create)]
    made += [delete(entry) for entry in every if not KINDS[entry["kind"]].never_deleted]
    made += [siblings(entry) for entry in every if entry["kind"] != "iam-member"]
    for key, change, _differs, _calls in UPDATED.values():
        entry = resource(key, EVERYTHING)
        have = returned(entry)
        change(have)
        made += updates(entry, have, diff(KINDS[entry["kind"]], have, entry["body"]))
    return made


@pytest.fixture(scope="module", autouse=True)
def _documents() -> None:
    try:
        documents.folder()
    except UnavailableError as error:
        pytest.skip(str(error))


def test_every_call_is_one_that_google_takes() -> None:
    every = calls()
    assert {call.service for call in every} == {"compute", "container", "iam", "serviceusage", "cloudresourcemanager"}
    for call in every:
        known = api(call.service).find(call.method, call.path)
        assert known, call
        assert api(call.service).request_errors(known[0], {}, call.body) == [], call
