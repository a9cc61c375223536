# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Servers whose answers have values of other types than those of Kubernetes: an error that names it, or no harm."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import Observed, parse, wire
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.expected import expected
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import NoObjectError, with_metadata
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Listing
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import observe_cluster
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe_control import observe_control
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import ControlCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status import sightings as seen
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.memory import MemoryClient
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.test_observe import (
    EAST,
    KEYED,
    WHOLE,
    node,
    pod,
)

ODD: Sequence[Any] = (
    None,
    [],
    {},
    "",
    "x",
    0,
    -1,
    True,
    2**63,
    1.5,
    [None],
    [[]],
    ["x"],
    {"a": None},
    {"a": []},
    {"": {}},
)


class OddClient(MemoryClient):
    """Checks objects as `Client` does."""

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Any:
        found = super().get(api_version, kind, name, namespace)
        return None if found is None else self._checked(found)

    def list(self, api_version: str, kind: str, **selection: str) -> Listing:  # type: ignore[override]
        listing = super().list(api_version, kind, **selection)
        return Listing(tuple(map(self._checked, listing.items)), "1")

    def _of(self, api_version: str, kind: str) -> Any:
        return (self._checked(deepcopy(each)) for each in super()._of(api_version, kind))

    def _checked(self, value: Any) -> Any:
        try:
            return with_metadata(value)
        except NoObjectError as error:
            raise ApiError(str(error), cluster=self.name) from None


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path and path not in (("apiVersion",), ("kind",)):
        yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, (*path, index))


def mutated(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    value = deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = deepcopy(odd)
    return value


def every(objects: Sequence[Any], share: int, seed: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the objects with one odd value, for one in `share` of all places and values."""
    chosen = random.Random(seed)
    for index, value in enumerate(objects):
        for path in places(value):
            for odd in ODD:
                if chosen.randrange(share) == 0:
                    where = f"{value['kind']}.{'.'.join(map(str, path))} = {odd!r}"
                    yield where, [*objects[:index], mutated(value, path, odd), *objects[index + 1 :]]


TROUBLED = pod(
    "a",
    phase="Pending",
    conditions=seen.conditions(Ready="False"),
    containerStatuses=[
        {"name": "engine", "ready": False, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    ],
)
CONTROL = [
    seen.showing(KEYED, conditions=seen.conditions(Ready="True")) if "status" not in KEYED else KEYED,
    {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {
            "name": "east",
            "labels": {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/published": "true"},
            "annotations": {"a": "b"},
            "generation": 2,
            "resourceVersion": "7",
            "finalizers": ["a/b"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "1"}],
        },
        "spec": {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": "east"}}}},
        "status": {"conditions": seen.conditions(Ready="True")},
    },
]


def test_what_is_odd_on_a_workload_cluster_ends_in_no_traceback() -> None:
    objects = [*WHOLE, node("n2", ready="False"), TROUBLED]
    tried = odd = 0
    for where, answers in every(objects, 12, 11):
        tried += 1
        try:
            snapshot = observe_cluster(OddClient(answers), EAST)
            wire(parse({"clusters": {"east": snapshot.entry}}))
        except ApiError as error:
            odd += bool(str(error))
        except Exception as error:
            pytest.fail(f"{where}: {type(error).__name__}: {error}")
    assert tried > 200
    assert odd > 10


def test_what_is_odd_on_a_control_cluster_ends_in_no_traceback() -> None:
    desired = expected([seen.EKS, seen.CLASS, KEYED])
    tried = odd = 0
    for where, answers in every(CONTROL, 1, 12):
        tried += 1
        try:
            snapshot = observe_control(OddClient(answers), desired)
            use(parse({"control": snapshot.entry}))
        except (ApiError, StoreError) as error:
            odd += bool(str(error))
        except Exception as error:
            pytest.fail(f"{where}: {type(error).__name__}: {error}")
    assert tried > 300
    assert odd > 20


def use(observed: Observed) -> None:
    store = ControlCluster(observed)
    store.sources()
    store.copies()
    store.statuses()
    store.objects()
    store.routed()
    store.existing()
    for value in observed.control:
        store.published(Loaded(), lambda _ref: None)
        assert value


@pytest.mark.parametrize(
    ("field", "odd", "says"),
    [
        ("labels", ["a"], "metadata.labels is not a map"),
        ("labels", {"a": ["b"]}, "an entry of metadata.labels is not a text"),
        ("annotations", {"a": 1}, "an entry of metadata.annotations is not a text"),
        ("generation", "1", "metadata.generation is not a number"),
        ("finalizers", {"a": 1}, "metadata.finalizers is not a list"),
        ("ownerReferences", [1], "an entry of metadata.ownerReferences is not a map"),
        ("ownerReferences", [{"uid": 1}], "metadata.ownerReferences.uid is not a text"),
        ("name", "", "it has no metadata.name"),
    ],
)
def test_an_odd_field_is_named(field: str, odd: Any, says: str) -> None:
    with pytest.raises(NoObjectError, match=f"^{says}$"):
        with_metadata({"metadata": {"name": "a", field: odd}})


def test_what_is_null_counts_as_unset() -> None:
    given = {"metadata": {"name": "a", "labels": None, "uid": None}, "spec": None, "status": None, "data": {"a": None}}
    assert with_metadata(given) == {"metadata": {"name": "a"}, "data": {"a": None}}
