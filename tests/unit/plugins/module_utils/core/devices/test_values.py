# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Quantities, versions and devices."""

from __future__ import annotations

from fractions import Fraction

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.quantity import Quantity, QuantityError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.semver import Semver, SemverError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1Gi", 2**30),
        ("1.5Gi", 3 * 2**29),
        ("400G", 400 * 10**9),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("-1", -1),
        ("1m", Fraction(1, 1000)),
        ("0.1n", Fraction(1, 10**9)),
        ("9Ei", 2**63 - 1),
        ("Mi", 0),
        (".5", Fraction(1, 2)),
        ("1.", 1),
    ],
)
def test_quantities(text: str, value: Fraction) -> None:
    quantity = Quantity.parse(text)
    assert quantity.value == value
    assert str(quantity) == text


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1\n", "1ki", "1Gib", "1e", "e3e", "Ei", "1,0", "0x1", "１", "1e1000"]
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12), st.sampled_from(["", "k", "Mi", "m"]))
def test_quantities_are_ordered_and_added_by_value(one: int, other: int, suffix: str) -> None:
    left, right = Quantity.parse(f"{one}{suffix}"), Quantity.parse(f"{other}{suffix}")
    assert (left < right) == (one < other)
    assert (left == right) == (one == other)
    assert (left + right).value == left.value + right.value
    assert (left - right) + right == left
    assert Quantity.parse(str(left + right)) == left + right


def test_versions_are_ordered_by_precedence() -> None:
    # The example of semver.org, clause 11.
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
    texts += ["1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "10.0.0"]
    assert sorted(map(Semver.parse, reversed(texts))) == [Semver.parse(text) for text in texts]
    assert Semver.parse("1.0.0+a") == Semver.parse("1.0.0+b")


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3+", "1.2.3-01", "18446744073709551616.0.0", "1.2.3\n"]
)
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(SemverError):
        Semver.parse(text)


@pytest.mark.parametrize(("text", "same"), [("v1.2.3", "1.2.3"), ("1", "1.0.0"), ("01.02", "1.2.0")])
def test_normalized_versions(text: str, same: str) -> None:
    assert Semver.parse(text, normalize=True) == Semver.parse(same)


def test_a_device_from_its_wire_form() -> None:
    device = Device.from_wire(
        {
            "name": "gpu",
            "driver": "gpu.nvidia.com",
            "count": -1,
            "attributes": {"mig": {"bool": False}, "example.com/tier": {"string": "gold"}},
            "capacity": {"memory": {"value": "141Gi"}},
        }
    )
    assert dict(device.attributes) == {"gpu.nvidia.com/mig": False, "example.com/tier": "gold"}
    assert dict(device.capacity) == {"gpu.nvidia.com/memory": Quantity.parse("141Gi")}
    assert (device.claim, device.count, device.device_class_name, device.invalid) == ("DRA", 0, None, "")


def test_devices_that_selectors_distinguish_are_different() -> None:
    def device(**value: object) -> Device:
        return Device.from_wire({"name": "g", "driver": "d", "attributes": {"a": value}})

    devices = [device(bool=True), device(int=1), device(string="1"), device(version="1.0.0")]
    assert len(set(devices)) == 4
    assert device(int=1) == device(int=1)


@pytest.mark.parametrize(
    "attribute", [{}, {"int": 1, "bool": True}, {"version": "1.2"}, {"int": "1"}, {"int": True}, {"int": 2**63}, None]
)
def test_an_attribute_that_kubernetes_would_not_take(attribute: object) -> None:
    assert "d/a" in Device.from_wire({"name": "g", "driver": "d", "attributes": {"a": attribute}}).invalid
