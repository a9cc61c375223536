# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The calls that find, make, list and delete what a GKECluster becomes, whose that is, and what comes of the calls."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.bodies import merged
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import (
    operations,
    owners,
    policies,
    requests,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import (
    PROJECT,
    Object,
    gke,
    resource,
    returned,
)

ALL = plan(gke(), PROJECT)["resources"]
NAME = "modelplane-system-gke-us-central-g-f8ba7"
EMAIL = "modelplane-system-gke-us-f8ba7@my-project.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{EMAIL}"
ROLE = "roles/container.admin"
CLUSTERS = "v1/projects/my-project/locations/us-central1/clusters"
# The service, the collection, and how it is made: what is added to the path of that, and the keys of the body.
CALLS: dict[str, tuple[str, str, str, set[str]]] = {
    "network": (
        "compute",
        "compute/v1/projects/my-project/global/networks",
        "",
        {"name", "autoCreateSubnetworks", "description"},
    ),
    "service-filestore": (
        "serviceusage",
        "v1/projects/my-project/services",
        "/file.googleapis.com:enable",
        set(),
    ),
    "subnetwork": (
        "compute",
        "compute/v1/projects/my-project/regions/us-central1/subnetworks",
        "",
        {"name", "description", "network", "ipCidrRange", "privateIpGoogleAccess", "secondaryIpRanges"},
    ),
    "cluster": ("container", CLUSTERS, "", {"cluster"}),
    "pool-system": ("container", f"{CLUSTERS}/{NAME}/nodePools", "", {"nodePool"}),
    "pool-gpu-l4": ("container", f"{CLUSTERS}/{NAME}/nodePools", "", {"nodePool"}),
    "service-account": ("iam", "v1/projects/my-project/serviceAccounts", "", {"accountId", "serviceAccount"}),
}


@pytest.mark.parametrize(("key", "calls"), CALLS.items(), ids=CALLS)
def test_calls(key: str, calls: tuple[str, str, str, set[str]]) -> None:
    entry = resource(key)
    service, collection, more, keys = calls
    found, made = requests.find(entry), requests.create(entry)
    assert (found.service, found.method, found.path, found.body) == (
        service,
        "GET",
        f"{collection}/{entry['name']}",
        None,
    )
    assert (made.service, made.method, made.path, set(made.body or {})) == (service, "POST", collection + more, keys)
    listed = requests.siblings(entry)
    assert (listed.method, listed.path) == ("GET", collection)
    if not KINDS[entry["kind"]].never_deleted:
        gone = requests.delete(entry)
        assert (gone.service, gone.method, gone.path, gone.body) == (service, "DELETE", found.path, None)
    assert made.purpose.startswith(("create ", "enable "))
    assert entry["name"] in made.purpose


def test_bodies() -> None:
    cluster, pool, account = (resource(key) for key in ("cluster", "pool-gpu-l4", "service-account"))
    assert requests.create(cluster).body == {"cluster": merged(cluster["body"], cluster["initial"])}
    body = merged(pool["body"], pool["initial"])
    assert body["config"]["shieldedInstanceConfig"]["enableSecureBoot"]
    sent = {key: value for key, value in body.items() if key != "version"}
    assert requests.create(pool).body == {"nodePool": sent}
    assert requests.create(account).body == {
        "accountId": "modelplane-system-gke-us-f8ba7",
        "serviceAccount": account["body"],
    }


POLICY: dict[str, Any] = {
    "version": 1,
    "etag": "BwX=",
    "auditConfigs": [{"service": "allServices"}],
    "bindings": [
        {"role": "roles/owner", "members": ["user:a@example.com"]},
        {"role": ROLE, "members": ["user:b@example.com"], "condition": {"title": "for a while", "expression": "true"}},
        {"role": ROLE, "members": ["user:c@example.com"]},
    ],
}


def test_a_member_of_a_policy() -> None:
    entry = resource("iam-member")
    before = deepcopy(POLICY)
    assert not policies.has(POLICY, ROLE, MEMBER)
    find = requests.find(entry)
    assert (find.service, find.method, find.path, find.body) == (
        "cloudresourcemanager",
        "POST",
        "v1/projects/my-project:getIamPolicy",
        {"options": {"requestedPolicyVersion": 3}},
    )
    made = requests.create(entry, POLICY)
    assert (made.method, made.path) == ("POST", "v1/projects/my-project:setIamPolicy")
    assert made.body == {
        "policy": {
            **POLICY,
            "version": 3,
            "bindings": [*POLICY["bindings"][:2], {"role": ROLE, "members": ["user:c@example.com", MEMBER]}],
        }
    }
    policy = made.body["policy"]
    assert policies.has(policy, ROLE, MEMBER)
    assert policies.added(policy, ROLE, MEMBER) == policy
    gone = requests.delete(entry, policy)
    assert gone
    assert gone.path == made.path
    assert gone.body == {"policy": {**POLICY, "version": 3}}
    assert before == POLICY


def test_the_only_member_of_a_role() -> None:
    policy = policies.added({"etag": "x"}, ROLE, MEMBER)
    assert policy == {"etag": "x", "version": 3, "bindings": [{"role": ROLE, "members": [MEMBER]}]}
    assert policies.removed(policy, ROLE, MEMBER) == {"etag": "x", "version": 3, "bindings": []}


def test_what_a_deleted_account_left_goes_too() -> None:
    others = ["deleted:serviceAccount:other@my-project.iam.gserviceaccount.com?uid=2", "user:a@example.com"]
    policy = {"bindings": [{"role": ROLE, "members": [f"deleted:{MEMBER}?uid=1", *others]}]}
    assert not policies.has(policy, ROLE, MEMBER)
    assert policies.removed(policy, ROLE, MEMBER)["bindings"] == [{"role": ROLE, "members": others}]


def test_a_condition_is_another_right() -> None:
    bound = {"bindings": [{"role": ROLE, "members": [MEMBER], "condition": {"title": "x", "expression": "true"}}]}
    assert not policies.has(bound, ROLE, MEMBER)
    assert policies.removed(bound, ROLE, MEMBER)["bindings"] == bound["bindings"]


@pytest.mark.parametrize("entry", ALL, ids=[entry["key"] for entry in ALL])
def test_what_is_ours(entry: Object) -> None:
    assert owners.conflict(entry, returned(entry)) == ""


MARKED = ("network", "subnetwork", "cluster", "pool-gpu-l4", "service-account")


@pytest.mark.parametrize("key", MARKED)
def test_what_is_not_ours(key: str) -> None:
    entry = resource(key)
    unowned = {"name": entry["name"], "description": "Made by hand", "resourceLabels": {"a": "b"}}
    message = owners.conflict(entry, unowned)
    assert f"{entry['name']} exists already, and was not created by this collection" in message
    other = next(each for each in plan(gke(), PROJECT, "blue")["resources"] if each["key"] == key)
    message = owners.conflict(entry, returned(other))
    assert "has another owner: modelplane-ai-fleet=blue in its" in message
    assert "not default." in message
    assert "gke_cluster_fleet" in message


def test_owner_labels() -> None:
    entry = resource("network")
    assert owners.OWNERS.of(KINDS["network"], entry["body"]) == {
        "modelplane-ai-cluster": NAME,
        "modelplane-ai-managed-by": "modelplane-fleet",
        "modelplane-ai-fleet": "default",
    }
    assert owners.OWNERS.of(KINDS["network"], {}) == {}
    assert owners.OWNERS.of(KINDS["service"], {"state": "ENABLED"}) == {}


OPERATIONS: dict[str, tuple[str, Object, str]] = {
    "global": ("network", {"name": "operation-1"}, "compute/v1/projects/my-project/global/operations/operation-1"),
    "of a region": (
        "subnetwork",
        {"name": "operation-1"},
        "compute/v1/projects/my-project/regions/us-central1/operations/operation-1",
    ),
    "of a cluster": (
        "cluster",
        {"name": "operation-1"},
        "v1/projects/my-project/locations/us-central1/operations/operation-1",
    ),
    "of a pool": (
        "pool-system",
        {"name": "operation-1"},
        "v1/projects/my-project/locations/us-central1/operations/operation-1",
    ),
    "of an API": ("service-filestore", {"name": "operations/acat.p2-1"}, "v1/operations/acat.p2-1"),
}


@pytest.mark.parametrize(("key", "operation", "path"), OPERATIONS.values(), ids=OPERATIONS)
def test_where_operations_are(key: str, operation: Object, path: str) -> None:
    assert operations.path(resource(key), operation) == path
    assert operations.is_operation(resource(key)["kind"], operation)


def test_answers_that_are_no_operations() -> None:
    assert not operations.is_operation("service-account", {"name": "projects/p/serviceAccounts/x"})
    assert not operations.is_operation("service", {"name": "operations/noop.DONE_OPERATION", "done": True})


ENDS: dict[str, tuple[Object, bool, list[tuple[str, str]], str]] = {
    "running": ({"status": "RUNNING", "progress": 40}, False, [], "RUNNING, 40 %"),
    "pending": ({"status": "PENDING", "detail": "waiting"}, False, [], "PENDING: waiting"),
    "done": ({"status": "DONE", "progress": 100}, True, [], "DONE"),
    "GKE": (
        {"status": "DONE", "error": {"code": 8, "message": "no machines"}},
        True,
        [("RESOURCE_EXHAUSTED", "no machines")],
        "DONE",
    ),
    "compute": (
        {"status": "DONE", "error": {"errors": [{"code": "QUOTA_EXCEEDED", "message": "Quota 'NETWORKS'"}]}},
        True,
        [("QUOTA_EXCEEDED", "Quota 'NETWORKS'")],
        "DONE",
    ),
    "an API": ({"name": "operations/x", "done": False}, False, [], "RUNNING"),
    "an API that is not enabled": (
        {"done": True, "error": {"code": 7, "message": "no"}},
        True,
        [("PERMISSION_DENIED", "no")],
        "DONE",
    ),
    "an unknown code": ({"done": True, "error": {"code": 99}}, True, [("99", "")], "DONE"),
}


@pytest.mark.parametrize(("operation", "done", "errors", "progress"), ENDS.values(), ids=ENDS)
def test_operations(operation: Object, done: bool, errors: list[tuple[str, str]], progress: str) -> None:
    assert (operations.done(operation), operations.errors(operation)) == (done, errors)
    assert operations.progress(operation) == progress


STATES: dict[str, tuple[str, Object, tuple[str, str], list[tuple[str, str]]]] = {
    "a cluster on its way": ("cluster", {"status": "PROVISIONING"}, ("PROVISIONING", "creating"), []),
    "a cluster": (
        "cluster",
        {"status": "RUNNING", "conditions": [{"code": "CA_EXPIRING"}]},
        ("RUNNING", "ready"),
        [],
    ),
    "a cluster that failed": (
        "cluster",
        {"status": "ERROR", "statusMessage": "no network"},
        ("ERROR", "failed"),
        [("", "no network")],
    ),
    "a pool without machines": (
        "node-pool",
        {"status": "RUNNING_WITH_ERROR", "conditions": [{"code": "GCE_STOCKOUT", "message": "none in a"}]},
        ("RUNNING_WITH_ERROR", "degraded"),
        [("GCE_STOCKOUT", "none in a")],
    ),
    "a newer code": (
        "node-pool",
        {"status": "ERROR", "conditions": [{"code": "UNKNOWN", "canonicalCode": "RESOURCE_EXHAUSTED", "message": "x"}]},
        ("ERROR", "failed"),
        [("RESOURCE_EXHAUSTED", "x")],
    ),
    "an API": ("service", {"state": "DISABLED"}, ("DISABLED", "changing"), []),
    "a network": ("network", {"name": "x"}, ("", "ready"), []),
}


@pytest.mark.parametrize(("kind", "actual", "expected", "causes"), STATES.values(), ids=STATES)
def test_states(kind: str, actual: Object, expected: tuple[str, str], causes: list[tuple[str, str]]) -> None:
    found = KINDS[kind].state(actual)
    assert (found.word, found.phase) == expected
    if found.phase in ("degraded", "failed"):
        assert operations.causes(actual) == causes
