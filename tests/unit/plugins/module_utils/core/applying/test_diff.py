# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what people see of a change."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.diff import change

US = "us"


def live(spec: dict[str, Any], fields: dict[str, Any] | None, kind: str = "Deployment", **more: Any) -> dict[str, Any]:
    entries = [{"manager": US, "operation": "Apply", "fieldsV1": fields}] if fields is not None else []
    metadata = {"name": "x", "namespace": "ns", "uid": "1", "resourceVersion": "5", "managedFields": entries}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec, "status": {"a": 1}, **more}


def test_only_fields_of_ours_are_shown() -> None:
    owned = {"f:spec": {"f:replicas": {}}}
    before, after = change(live({"replicas": 1, "theirs": 2}, owned), live({"replicas": 3, "theirs": 4}, owned), US)
    assert before == "apiVersion: v1\nkind: Deployment\nmetadata:\n  name: x\n  namespace: ns\nspec:\n  replicas: 1\n"
    assert after == before.replace("1\n", "3\n").replace("apiVersion: v3", "apiVersion: v1")


def test_a_field_taken_from_others_shows_what_it_was() -> None:
    before, after = change(
        live({"replicas": 1}, {"f:spec": {"f:a": {}}}), live({"replicas": 3}, {"f:spec": {"f:replicas": {}}}), US
    )
    assert "replicas: 1" in before
    assert "replicas: 3" in after


def test_a_new_object_and_one_that_goes() -> None:
    owned = {"f:spec": {}}
    value = live({"replicas": 1}, owned)
    assert change(None, value, US)[0] == ""
    assert "replicas: 1" in change(None, value, US)[1]
    assert change(value, None, US) == (change(None, value, US)[1], "")


def test_values_of_secrets_are_never_shown() -> None:
    owned = {"f:data": {}}
    old = live({}, owned, "Secret", data={"TOKEN": "b2xk", "SAME": "c2FtZQ=="})
    new = live({}, owned, "Secret", data={"TOKEN": "bmV3", "SAME": "c2FtZQ==", "MORE": "bW9yZQ=="})
    before, after = change(old, new, US)
    assert "TOKEN: '********'" in before or 'TOKEN: "********"' in before or "TOKEN: ********" in before
    assert "TOKEN: '******** (changed)'" in after or "TOKEN: ******** (changed)" in after
    assert "MORE" in after
    for text in (before, after, *change(None, new, US), *change(new, None, US)):
        assert not [value for value in ("b2xk", "bmV3", "c2FtZQ==", "bW9yZQ==") if value in text]


def test_secret_values_in_variables_are_masked_and_their_change_is_seen() -> None:
    def pod(value: str) -> dict[str, Any]:
        return live({"env": [{"name": "API_TOKEN", "value": value}]}, {"f:spec": {}})

    before, after = change(pod("hunter2"), pod("hunter3"), US)
    assert "hunter" not in before + after
    assert before != after


def test_an_object_without_any_field_of_ours_shows_its_identity_alone() -> None:
    before, _ = change(live({"replicas": 1}, None), None, US)
    assert "name: x" in before
    assert "replicas" not in before


def test_an_object_that_could_not_be_sent_yet_is_shown_whole() -> None:
    desired = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "data": {"k": "v"},
    }
    before, after = change(None, desired, US)
    assert before == ""
    assert "k: v" in after
    assert "a: b" in after
