# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module `apply` with objects in place of a build, on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.apply_results import ApplyError, run
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

Object = dict[str, Any]
FLEET = "objects"


def settings(name: str, namespace: str = "objects", **data: str) -> Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def arguments(plane: ControlPlane, objects: list[Object] | None, **more: Any) -> dict[str, Any]:
    return {
        "path": None,
        "objects": objects,
        "record": "mine",
        "clusters": [{"name": plane.name, "kubeconfig": str(plane.kubeconfig)}],
        "control": None,
        "folders": {},
        "state": "present",
        "fleet": FLEET,
        "prune": True,
        "force": False,
        "wait": 0.0,
        "parts": ["clusters", "control"],
        "lease": None,
        "definitions": False,
        "lock_timeout": 5.0,
        "forks": 2,
        "timeout": 10.0,
        "retries": 1,
        "on_error": "fail",
        **more,
    }


def applied(plane: ControlPlane, objects: list[Object] | None, *, check_mode: bool = False, **more: Any) -> Object:
    return run(arguments(plane, objects, **more), check_mode=check_mode, diff=False)[0]


def actions(result: Object) -> dict[str, str]:
    reported = result["clusters"] or {"control": result["control"]}
    return {each["name"]: each["action"] for found in reported.values() for each in found["objects"]}


@pytest.fixture
def plane(cluster: ControlPlane) -> Iterator[ControlPlane]:
    cluster.create_namespace("objects")
    yield cluster
    for record in ("mine", "others"):
        applied(cluster, None, record=record, state="absent")


def test_objects_are_applied_and_stay(plane: ControlPlane) -> None:
    desired = [settings("one", a="1"), settings("two", a="1")]
    assert actions(applied(plane, desired, check_mode=True))["one"] == "created"
    assert plane.get("v1", "ConfigMap", "one", "objects") is None
    assert applied(plane, desired)["changed"]
    found = plane.get("v1", "ConfigMap", "one", "objects")
    assert found is not None
    assert found["metadata"]["labels"] == {MANAGED_BY_LABEL: MANAGED_BY}
    since = plane.audit_position()
    assert not applied(plane, desired)["changed"]
    assert plane.write_requests(since) == []


def test_what_is_no_longer_among_them_goes(plane: ControlPlane) -> None:
    applied(plane, [settings("one", a="1"), settings("two", a="1")])
    assert actions(applied(plane, [settings("one", a="2")]))["two"] == "deleted"
    assert plane.get("v1", "ConfigMap", "two", "objects") is None


def test_records_do_not_touch_what_is_in_none_of_theirs(plane: ControlPlane) -> None:
    # As a build leaves it whose record is lost.
    stray = settings("stray", a="1")
    stray["metadata"]["labels"] = {MANAGED_BY_LABEL: MANAGED_BY}
    applied(plane, [settings("of-others", a="1"), stray], record="others")
    plane.objects.delete("v1", "ConfigMap", f"modelplane-record-{FLEET}.1.others.{plane.name}", "modelplane-system")
    result = applied(plane, [settings("one", a="1")])
    assert "deleted" not in actions(result).values()
    assert plane.get("v1", "ConfigMap", "stray", "objects")
    assert not applied(plane, [settings("one", a="1")])["changed"]
    applied(plane, None, state="absent")
    assert plane.get("v1", "ConfigMap", "one", "objects") is None
    assert plane.get("v1", "ConfigMap", "stray", "objects")
    for name in ("stray", "of-others"):
        plane.objects.delete("v1", "ConfigMap", name, "objects")


def test_the_control_cluster_gets_them_too(plane: ControlPlane) -> None:
    control = {"kubeconfig": str(plane.kubeconfig)}
    result = applied(plane, [settings("one", a="1")], clusters=[], control=control)
    assert actions(result)["one"] == "created"
    applied(plane, None, state="absent", clusters=[], control=control)
    assert plane.get("v1", "ConfigMap", "one", "objects") is None


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no record": ({"record": None}, "objects needs record"),
    "a record that is no name": ({"record": "My Record"}, "record is"),
    "a build as well": ({"path": "/somewhere"}, "path and record"),
    "what is no object": ({"objects": [{"kind": "ConfigMap"}]}, r"objects\[0\] has no apiVersion"),
    "a Secret": (
        {"objects": [{**settings("token", key="planted"), "kind": "Secret"}]},
        r"objects\[0\] is Secret token",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported(cluster: ControlPlane, name: str) -> None:
    change, message = MISTAKES[name]
    with pytest.raises(ApplyError, match=message) as caught:
        run({**arguments(cluster, [settings("one")]), **change}, check_mode=False, diff=False)
    assert "planted" not in str(caught.value)
