# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Decisions on a real API server: runs that are killed at each of their writes, runs at once, and what others wrote."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.decision import (
    FORMAT,
    DecisionError,
    DesiredState,
    Head,
    packed,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import digest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.decisions import Comparison, Decisions
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, LockLost
from ansible_collections.modelplane.fleet.tests.unit.kube.places import SYSTEM, Place, config, thing

pytestmark = pytest.mark.usefixtures("anchor")

AT = "2026-01-01T00:00:00Z"
States = dict[str, DesiredState]


def state(value: str) -> DesiredState:
    return DesiredState((config("settings", "mp-team-12345", value=value),))


def states(value: str, *clusters: str) -> States:
    return {name: state(value) for name in clusters or ("east", "west")}


@pytest.fixture
def decisions(place: Place) -> Iterator[Decisions]:
    found = Decisions(place.client, place.fleet, forks=1)
    yield found
    found.withdraw()


def publish(decisions: Decisions, desired: States, others: tuple[str, ...] = ()) -> int:
    return decisions.publish(compare(decisions, desired, others), "host/run", AT).generation


def compare(decisions: Decisions, desired: States, others: tuple[str, ...] = ()) -> Comparison:
    return decisions.compare({name: packed(each) for name, each in desired.items()}, others)


def read(decisions: Decisions, *clusters: str) -> dict[str, DesiredState | None]:
    """Return what a slice finds for clusters; None where it is refused."""
    found: dict[str, DesiredState | None] = dict.fromkeys(clusters or ("east", "west"))
    with contextlib.suppress(DecisionError):
        index = decisions.index(decisions.newest())
        for cluster in found:
            with contextlib.suppress(DecisionError):
                found[cluster] = decisions.desired_state(index, cluster)
    return found


@contextlib.contextmanager
def killed_after(client: Client, writes: int) -> Iterator[None]:
    """Nothing is written any more after so many writes."""

    def written() -> int:
        return sum(client.requests[verb] for verb in ("create", "replace", "delete"))

    end = written() + writes
    client.write_until(lambda: written() >= end)
    try:
        yield
    finally:
        client.write_until(lambda: False)


def named(place: Place, *parts: str) -> str:
    return ".".join([f"modelplane-decision-{place.fleet}", *parts])


@pytest.mark.parametrize("after", range(4))
def test_a_run_that_is_killed_leaves_nothing_that_the_next_one_does_not_mend(
    place: Place, decisions: Decisions, after: int
) -> None:
    publish(decisions, states("old"))
    with killed_after(place.client, after), pytest.raises(LockLost):
        publish(decisions, states("new"))
    assert all(found in (None, state("old")) for found in read(decisions).values())
    # It is as before again when the next run decides.
    publish(decisions, states("old"))
    assert read(decisions) == states("old")


def test_parts_that_were_deleted_or_changed_are_written_again(place: Place, decisions: Decisions) -> None:
    publish(decisions, states("old"))
    place.client.delete("v1", "ConfigMap", named(place, "1", "east"), SYSTEM)
    with pytest.raises(DecisionError, match=rf"there is no ConfigMap {SYSTEM}/.*\.1\.east .*Run the playbook decide"):
        decisions.desired_state(decisions.index(decisions.newest()), "east")
    compared = compare(decisions, states("old"))
    assert (compared.is_same, compared.changed) == (False, ["east"])
    assert publish(decisions, states("old")) == 2
    assert read(decisions) == states("old")
    assert publish(decisions, states("old")) == 2


def test_of_two_runs_that_publish_at_once_one_fails(decisions: Decisions) -> None:
    for number in (1, 2):
        first, second = (compare(decisions, states(f"{number} {name}")) for name in ("first", "second"))
        decisions.publish(first, "host/first", AT)
        with pytest.raises((ApiError, DecisionError), match=r"already exists|meanwhile"):
            decisions.publish(second, "host/second", AT)
        assert decisions.newest().holder == "host/first"
        publish(decisions, states(f"{number} first"))
        assert read(decisions) == states(f"{number} first")


def test_what_was_decided_before_a_run_over_all_clusters_is_not_published_again(decisions: Decisions) -> None:
    publish(decisions, states("old"))
    # A run that is limited keeps the others.
    publish(decisions, states("new", "east"), others=("west",))
    assert read(decisions) == {"east": state("new"), "west": state("old")}
    decisions.supersede("host/whole", AT)
    publish(decisions, states("new", "east"), others=("west",))
    # What that run applied to west is in no decision.
    assert read(decisions) == {"east": state("new"), "west": None}
    publish(decisions, states("new"))
    assert read(decisions) == states("new")


def test_a_decision_of_a_generation_that_is_there_again_is_another_one(decisions: Decisions) -> None:
    publish(decisions, states("old"))
    head = decisions.newest(1)
    decisions.check(head)
    decisions.withdraw()
    publish(decisions, states("new"))
    with pytest.raises(DecisionError, match="is not the newest"):
        decisions.check(head)


NAMES = {
    "dots": "a.b.c",
    "index": "index",
    "a number": "1",
    "long": "a" * 250,
    "long, cut at a dot": "a" * 56 + "." + "b" * 190,
}


def test_clusters_have_any_names(decisions: Decisions) -> None:
    desired = {name: state(name) for name in NAMES.values()}
    publish(decisions, desired)
    assert read(decisions, *desired) == desired
    assert decisions.clusters() == sorted(desired)


def test_fleets_with_similar_names_do_not_meet(place: Place) -> None:
    fleets = [Decisions(place.client, name) for name in (place.fleet, f"{place.fleet}-1", f"{place.fleet}-1-east")]
    for number, fleet in enumerate(fleets):
        publish(fleet, states(f"{number}", "east", "1.east", "index"))
    for number, fleet in enumerate(fleets):
        assert read(fleet, "1.east", "index") == states(f"{number}", "1.east", "index")
        fleet.withdraw()
        assert fleet.head() is None
    selector = "modelplane.ai/decision=true"
    found = place.client.list("v1", "ConfigMap", namespace=SYSTEM, labels=selector).items
    assert not [each for each in found if place.fleet in each["metadata"]["name"]]


def write(place: Place, content: Any, cluster: str = "east") -> None:
    """Write a decision as who may write ConfigMaps there can."""
    index = {cluster: [digest(content), 1]}
    objects = place.plane.objects
    for name, value in ((named(place, "1", cluster), content), (named(place, "index"), index)):
        data = base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()
        objects.patch("v1", "ConfigMap", name, {"binaryData": {"content": data}}, SYSTEM)
    objects.patch("v1", "ConfigMap", named(place), {"data": Head(1, digest(index), "x", AT).data()}, SYSTEM)


def of(**changes: Any) -> dict[str, Any]:
    found = {"objects": [], "secretCopies": [], "held": []}
    return {**found, **changes}


def copied(namespace: Any) -> dict[str, Any]:
    return {"cluster": "east", "from": {"namespace": SYSTEM, "name": "a", "key": "b"}, "to": {"namespace": namespace}}


FORGED = {
    "an object in a namespace of Kubernetes": of(objects=[config("a", "kube-system")]),
    "an object in a namespace of users": of(objects=[config("a", "default")]),
    "a namespace of Kubernetes": of(objects=[thing("v1", "Namespace", "kube-x")]),
    "a Secret": of(objects=[{**config("a", "mp-a"), "kind": "Secret"}]),
    "an object that is none": of(objects=[5]),
    "a name that is none": of(objects=[{**config("a", "mp-a"), "metadata": {"name": ["a"], "namespace": "mp-a"}}]),
    "a namespace that is none": of(objects=[{**config("a", "mp-a"), "metadata": {"name": "a", "namespace": 5}}]),
    "a copy of a Secret to elsewhere": of(secretCopies=[copied("kube-system")]),
    "a copy that is none": of(secretCopies=[5]),
    "labels that are none": of(held=[5]),
    "labels of three": of(held=[[["a", "b", "c"]]]),
    "labels of numbers": of(held=[[[1, 2]]]),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_others_wrote_in_place_of_a_decision_is_refused(place: Place, decisions: Decisions, name: str) -> None:
    publish(decisions, states("old", "east"))
    write(place, FORGED[name])
    index = decisions.index(decisions.newest())
    with pytest.raises(DecisionError, match=r"what was decided for cluster east cannot be read: .* Run the playbook"):
        decisions.desired_state(index, "east")
    publish(decisions, states("old", "east"))
    assert read(decisions, "east") == states("old", "east")


@pytest.mark.parametrize("generation", ["9" * 5000, "-1", "1.5", "", "٣", "one"])
def test_a_head_of_others_is_refused(place: Place, decisions: Decisions, generation: str) -> None:
    publish(decisions, states("old"))
    data = {"format": FORMAT, "generation": generation}
    place.plane.objects.patch("v1", "ConfigMap", named(place), {"data": data}, SYSTEM)
    for work in (decisions.newest, lambda: publish(decisions, states("new"))):
        with pytest.raises(DecisionError, match=r"it is not in the format of this version\. Delete it"):
            work()
    place.client.delete("v1", "ConfigMap", named(place), SYSTEM)
    publish(decisions, states("new"))
    assert read(decisions) == states("new")
