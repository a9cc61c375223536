# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Requests that the double takes and refuses, of all services: discovery documents, refusals, the log of calls."""

from __future__ import annotations

import http.client
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.gcp.discovery import api
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.made import Project, Refused

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("service", "verb", "path", "method"),
    [
        ("container", "POST", "v1/projects/p/locations/l/clusters/c:setResourceLabels", "projects.locations.clusters."),
        ("container", "PUT", "v1/projects/p/locations/l/clusters/c/nodePools/n", "projects.locations.clusters."),
        ("compute", "POST", "compute/v1/projects/p/regions/r/subnetworks/s/expandIpCidrRange", "subnetworks."),
        ("compute", "GET", "compute/v1/projects/p/aggregated/forwardingRules", "forwardingRules."),
        ("serviceusage", "POST", "v1/projects/p/services/file.googleapis.com:enable", "services."),
        ("cloudresourcemanager", "POST", "v1/projects/p:setIamPolicy", "projects."),
        ("iam", "DELETE", "v1/projects/p/serviceAccounts/a@p.iam.gserviceaccount.com/keys/k", "projects."),
        ("file", "DELETE", "v1/projects/p/locations/l/instances/i", "projects.locations.instances."),
    ],
)
def test_methods_are_found_by_their_paths(service: str, verb: str, path: str, method: str) -> None:
    found = api(service).find(verb, path)
    assert found is not None
    assert found[0].name.startswith(method)
    assert api(service).find("PATCH", f"{path}/nothing") is None


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"deletionProtection": False}, "'deletionProtection' was unexpected"),
        ({"status": "RUNNING"}, "cluster.status: only Google sets it"),
        ({"nodePools": [{"config": {"guestAccelerator": []}}]}, "'guestAccelerator' was unexpected"),
        ({"nodePools": [{"autoscaling": {"minNodeCount": "1"}}]}, "'1' is not of type 'integer'"),
        ({"releaseChannel": {"channel": "regular"}}, "'regular' is not one of"),
        ({"resourceLabels": {"a": 1}}, "1 is not of type 'string'"),
    ],
)
def test_bodies_that_documents_do_not_allow(body: Json, error: str) -> None:
    method, _ = api("container").find("POST", "v1/projects/p/locations/l/clusters") or pytest.fail("no method")
    errors = api("container").request_errors(method, {}, {"cluster": body})
    assert len(errors) == 1
    assert error in errors[0]


def test_numbers_of_64_bits_are_texts_or_numbers() -> None:
    method, _ = api("container").find("POST", "v1/projects/p/locations/l/clusters") or pytest.fail("no method")
    for count, invalid in (("8", False), (8, False), ("eight", True)):
        accelerators = [{"acceleratorCount": count}]
        body = {"cluster": {"nodePools": [{"config": {"accelerators": accelerators}}]}}
        assert bool(api("container").request_errors(method, {}, body)) == invalid


def test_parameters_of_queries() -> None:
    method, _ = api("iam").find("GET", "v1/projects/p/serviceAccounts/a/keys") or pytest.fail("no method")
    assert api("iam").request_errors(method, {"keyTypes": ["USER_MANAGED", "SYSTEM_MANAGED"]}, None) == []
    assert api("iam").request_errors(method, {"keyTypes": ["MINE"]}, None) == ["the parameter keyTypes is 'MINE'"]
    assert api("iam").request_errors(method, {"what": ["x"]}, None) == ["there is no parameter what"]


def test_invalid_requests_are_refused_and_noted(gcp: Double, project: Project) -> None:
    with pytest.raises(Refused) as refused:
        project.call("container", "POST", f"{project.location}/clusters", {"cluster": {"guestAccelerator": []}})
    assert (refused.value.status, refused.value.code) == (400, "INVALID_ARGUMENT")
    assert "guestAccelerator" in gcp.invalid()[0]
    status, _ = gcp.request("container", "GET", "v1/projects/p/locations/l/clusters/c:checkAutopilotCompatibility")
    assert status == 403
    assert len(gcp.invalid()) == 1
    gcp.reset()


def test_what_the_double_lacks_is_noted(gcp: Double, project: Project) -> None:
    with pytest.raises(Refused) as refused:
        project.call("compute", "GET", f"{project.path}/global/images")
    assert refused.value.status == 501
    assert gcp.invalid() == ["compute images.list: the double does not have it"]
    gcp.reset()


def test_calls_are_logged(gcp: Double, project: Project) -> None:
    gcp.forget_calls()
    project.make_network()
    project.call("compute", "GET", project.network)
    assert [(call["operation"], call["mutating"], call["region"]) for call in gcp.calls()] == [
        ("networks.insert", True, ""),
        ("subnetworks.insert", True, "us-central1"),
        ("networks.get", False, ""),
    ]
    assert len(gcp.calls(mutating=True)) == 2
    body = {"name": "fleet", "autoCreateSubnetworks": False}
    assert gcp.calls()[0]["parameters"] == {"project": project.name, "body": body}


def test_a_call_is_refused(gcp: Double, project: Project) -> None:
    gcp.refuse(operation="subnetworks.insert", code="quotaExceeded", message="No more of them.", status=403)
    with pytest.raises(Refused, match="No more of them") as refused:
        project.make_network()
    assert (refused.value.status, refused.value.code) == (403, "quotaExceeded")
    assert gcp.objects() == [project.network]
    assert gcp.refusals() == []


def test_the_nth_mutating_call_is_refused(gcp: Double, project: Project) -> None:
    gcp.refuse(at=2, code="UNAVAILABLE", message="Try again.", status=503)
    project.call("compute", "POST", f"{project.path}/global/networks", {"name": "a", "autoCreateSubnetworks": False})
    project.call("compute", "GET", f"{project.path}/global/networks/a")
    with pytest.raises(Refused) as refused:
        project.call("iam", "POST", f"{project.path}/serviceAccounts", {"accountId": "fleet-one"})
    assert (refused.value.status, refused.value.code) == (503, "UNAVAILABLE")
    project.call("iam", "POST", f"{project.path}/serviceAccounts", {"accountId": "fleet-one"})


def test_an_answer_gets_lost(gcp: Double, project: Project) -> None:
    gcp.refuse(after=True)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        project.make_network()
    assert gcp.objects() == [project.network]


def test_a_call_takes_effect_and_is_refused(gcp: Double, project: Project) -> None:
    gcp.refuse(effect=True, code="UNAVAILABLE", status=503)
    with pytest.raises(Refused):
        project.make_network()
    assert gcp.objects() == [project.network]


def test_each_distinct_call_is_refused_once(gcp: Double, project: Project) -> None:
    gcp.refuse_each_once(code="UNAVAILABLE", status=503)
    names = iter(("a", "a", "b", "b"))
    outcomes = []
    for name in names:
        body = {"name": name, "autoCreateSubnetworks": False}
        try:
            project.call("compute", "POST", f"{project.path}/global/networks", body)
            outcomes.append("made")
        except Refused:
            outcomes.append("refused")
    assert outcomes == ["refused", "made", "refused", "made"]


def test_a_reset_forgets_everything_but_the_key(gcp: Double, project: Project) -> None:
    project.make_network()
    key = gcp.key()
    gcp.reset()
    assert (gcp.objects(), gcp.calls(), gcp.settings()["polls"], gcp.key()) == ([], [], 2, key)


def test_another_project(gcp: Double, project: Project) -> None:
    assert gcp.add_project("another-one") == {"name": "another-one", "number": 123456789013}
    assert gcp.key("another-one")["client_email"] == "provisioner@another-one.iam.gserviceaccount.com"
    with pytest.raises(Refused) as refused:
        project.call("compute", "GET", "projects/another-one/zones")
    assert refused.value.code == "forbidden"
    with pytest.raises(Refused, match="Permission denied on resource project nowhere"):
        project.call("compute", "GET", "projects/nowhere/zones")


def test_settings(gcp: Double, project: Project) -> None:
    assert gcp.settings(polls=3)["polls"] == 3
    with pytest.raises(ValueError, match="there is no setting speed"):
        gcp.settings(speed=1)
    with pytest.raises(ValueError, match="no such control"):
        gcp._ask("nothing")
    assert project.name == "modelplane-test"
