# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Selectors that separate one kind of device from others."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.distinction import distinguish
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import compile_selector
from hypothesis import given
from hypothesis import strategies as st

Attributes = dict[str, dict[str, Any]]


def device(attributes: Attributes | None = None, driver: str = "gpu.nvidia.com", **capacity: str) -> Device:
    return Device.from_wire(
        {
            "name": "gpu",
            "driver": driver,
            "deviceClassName": "gpu.nvidia.com",
            "count": 8,
            "attributes": attributes or {},
            "capacity": {name: {"value": value} for name, value in capacity.items()},
        }
    )


MEMORY = 'device.capacity["gpu.nvidia.com"]["memory"]'


@pytest.mark.parametrize(
    ("kind", "other", "expected"),
    [
        (device(memory="24Gi"), device(memory="80Gi"), f'{MEMORY}.compareTo(quantity("80Gi")) < 0'),
        (device(memory="80Gi"), device(memory="24Gi"), f'{MEMORY}.compareTo(quantity("80Gi")) >= 0'),
        (device(driver="a.example.com"), device(), 'device.driver == "a.example.com"'),
        (
            device({"model": {"string": "L4"}}, memory="24Gi"),
            device({"model": {"string": "H100"}}, memory="80Gi"),
            'device.attributes["gpu.nvidia.com"]["model"] == "L4"',
        ),
        (
            device({"cuda": {"version": "12.2.0"}}),
            device({"cuda": {"version": "12.4.0"}}),
            '.compareTo(semver("12.2.0")) == 0',
        ),
        (device({"mig": {"bool": False}}), device({"mig": {"bool": True}}), '["mig"] == false'),
        (device({"numa": {"int": -1}}), device({"numa": {"int": 1}}), '["numa"] == -1'),
        (device({"numa": {"int": 1}}), device(), '["numa"] == 1'),
        (device(), device({"numa": {"int": 1}}), '!("numa" in '),
        (device(), device(memory="1Gi"), '!("memory" in '),
    ],
)
def test_what_differs_is_asked_for(kind: Device, other: Device, expected: str) -> None:
    found = distinguish(kind, [other])
    assert found is not None
    assert expected in found
    verdicts = [compile_selector(found).evaluate(each) for each in (kind, other)]
    assert [(verdict.match, verdict.error) for verdict in verdicts] == [(True, None), (False, None)]


def test_larger_devices_than_promised_are_still_of_their_kind() -> None:
    small, large = device(memory="24Gi"), device(memory="80Gi")
    found = compile_selector(distinguish(large, [small]) or "")
    assert found.evaluate(device(memory="96Gi")).match


def test_kinds_that_publish_the_same_cannot_be_separated() -> None:
    assert distinguish(device(memory="24Gi"), [device(memory="24Gi")]) is None


VALUE = st.one_of(
    st.builds(lambda text: {"string": text}, st.text(st.characters(exclude_categories=["Cs"]), max_size=12)),
    st.builds(lambda number: {"int": number}, st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda flag: {"bool": flag}, st.booleans()),
    st.builds(lambda number: {"version": f"1.{number}.0"}, st.integers(0, 3)),
)
DEVICES = st.builds(
    lambda attributes, memory: device(attributes, memory=f"{memory}Gi"),
    st.dictionaries(st.sampled_from(["a", "b", "other.example.com/c"]), VALUE, max_size=3),
    st.integers(1, 3),
)


@given(DEVICES, st.lists(DEVICES, min_size=1, max_size=3))
def test_a_selector_matches_one_kind_alone_and_fails_on_none(kind: Device, others: list[Device]) -> None:
    found = distinguish(kind, others)
    if found is None:
        return
    selector = compile_selector(found)
    assert [selector.evaluate(each).match for each in (kind, *others)] == [True] + [False] * len(others)
    assert not any(selector.evaluate(each).error for each in (kind, *others))
