# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what a run leaves behind that lost its record, its server or its life, and how the next one goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Entry, Key
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import WRITES, Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, Conflict, Unreachable
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import RecordStore
from ansible_collections.modelplane.fleet.tests.unit.kube.places import (
    SYSTEM,
    Object,
    Place,
    actions,
    all_are,
    config,
    deployment,
    drifted,
    thing,
    written,
)


def test_a_lost_record_costs_one_read_and_nothing_stays_behind(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    other_tool = config("by-hand", place.namespace, a="1")
    place.plane.apply(other_tool)
    place.forget()
    applied = place.apply(objects[:3])
    assert actions(applied) == {**all_are(place, "unchanged"), "Deployment/web": "deleted"}
    assert place.get(other_tool) is not None
    assert place.records()
    assert not place.apply(objects[:3]).changed


def test_a_record_that_a_user_changed_is_reported_and_mended(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    [record] = place.records()
    text = record["data"]["objects"].replace("Service", "Servant")
    drifted(place, record, {"data": {"objects": text}})
    applied = place.apply(objects)
    assert not applied.changed
    assert any("changed by another manager" in note for note in applied.notes)
    assert place.apply(objects).notes == ()


def test_a_record_that_another_run_wrote_meanwhile_stops_this_one(place: Place) -> None:
    objects = place.objects()
    place.apply(objects[:1])

    class Interrupted(Wrapped):
        def replace(self, obj: Object, **more: Any) -> Object:
            [record] = place.records()
            drifted(place, record, {"metadata": {"annotations": {"touched": "yes"}}})
            return self._client.replace(obj, **more)

    with pytest.raises(Conflict, match="another run of fleet"):
        place.apply(objects, client=Interrupted(place.client))  # type: ignore[arg-type]
    assert place.get(objects[1]) is None


def test_what_others_write_before_an_apply_is_no_change_of_this_run(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    [record] = place.records()
    drifted(place, record, {"data": {"objects": record["data"]["objects"].replace("Service", "Servant")}})

    class Overtaken(Wrapped):
        def apply(self, obj: Object, **more: Any) -> Object:
            drifted(place, obj, {"metadata": {"annotations": {"example.com/controller": obj["kind"]}}})
            return self._client.apply(obj, **more)

    applied = place.apply(objects, client=Overtaken(place.client))  # type: ignore[arg-type]
    assert not applied.changed
    for value in objects:
        annotations = (place.get(value) or {})["metadata"]["annotations"]
        assert annotations["example.com/controller"] == value["kind"]


class Wrapped:
    """A client that stands before another one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Dying(Wrapped):
    """Fails at a write request: before it is sent, or after it was carried out."""

    def __init__(self, client: Client, at: int, *, after: bool) -> None:
        super().__init__(client)
        self.left = at
        self.after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return self._counted(method) if name in WRITES else method

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0 or (self.left == 0 and not self.after):
                raise Unreachable("killed", cluster=self._client.name)
            answer = method(*arguments, **options)
            if self.left == 0:
                raise Unreachable("killed", cluster=self._client.name)
            return answer

        return call


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 9))
def test_a_killed_run_leaves_nothing_that_the_next_does_not_know(place: Place, at: int, after: bool) -> None:
    old = [*place.objects(), config("old", place.namespace, a="1")]
    place.apply(old)
    new = [*place.objects(), config("new", place.namespace, a="1"), deployment("new", place.namespace)]
    new[1]["data"] = {"a": "2"}
    with contextlib.suppress(ApiError):
        place.apply(new, client=Dying(place.client, at, after=after))  # type: ignore[arg-type]
    # Desired state changes before the next run, which is the worst case for what the killed one made.
    last = [*new[:4], config("last", place.namespace, a="1")]
    place.apply(last)
    for value in last:
        assert place.get(value) is not None
    for gone in (old[4], new[4], new[5]):
        assert place.get(gone) is None
    since = place.plane.audit_position()
    assert not place.apply(last).changed
    assert not written(place, since)


def test_a_record_of_several_parts_grows_and_shrinks(place: Place) -> None:
    store = RecordStore(place.client, place.fleet, "big")
    place.plane.apply(thing("v1", "Namespace", SYSTEM))
    for count, parts in ((12_000, 2), (25_000, 3), (10, 1), (0, 0)):
        record = {
            Key("", "ConfigMap", "ns", f"object-{n}"): Entry("v1", "0123456789" * 2, "ab" * 10) for n in range(count)
        }
        store.read()
        store.write(record)
        assert len(place.records()) == parts
        fresh = RecordStore(place.client, place.fleet, "big")
        fresh.read()
        assert (fresh.own or {}) == record
        assert fresh.error == ""


def test_the_server_goes_away_in_the_middle(place: Place) -> None:
    objects = place.objects()

    class Killing(Dying):
        def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                self.left -= 1
                if self.left == 0:
                    place.plane.kill_api_server()
                return method(*arguments, **options)

            return call

    quick = Connection("east", kubeconfig=str(place.plane.kubeconfig), retries=0, timeout=3)
    try:
        with connect(quick, write_cache=False) as client, pytest.raises(Unreachable, match="east"):
            place.apply(objects, client=Killing(client, 4, after=False))  # type: ignore[arg-type]
    finally:
        place.plane.start_api_server()
    applied = place.apply(objects)
    assert not applied.failed
    assert all(place.get(value) for value in objects)
    assert not place.apply(objects).changed
