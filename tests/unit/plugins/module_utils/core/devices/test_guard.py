# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Selectors that do not fail on devices that lack what they read."""

from __future__ import annotations

import random

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.guard import guarded
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.limits import MAX_EXPRESSION
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import compile_selector

G = 'device.attributes["gpu.example.com"]'
C = 'device.capacity["gpu.example.com"]'
ELSEWHERE = 'device.attributes["other.example.com"]'

ATOMS = (
    f'{G}.model == "H100"',
    f'{G}["model"] != "H100"',
    f'{G}.model.startsWith("H")',
    f"{G}.sxm",
    f"{G}.index > 2",
    f'{C}.memory.compareTo(quantity("40Gi")) >= 0',
    f'{C}["memory"].isLessThan(quantity("60Gi"))',
    f'{ELSEWHERE}.zone == "a"',
    f"has({G}.model)",
    f'"memory" in {C}',
    f"!has({ELSEWHERE}.zone)",
    f'["H100", "H200"].exists(m, m == {G}.model)',
    f"[1, 2, 3].all(i, i != {G}.index)",
    f'cel.bind(gpu, {G}, gpu.sxm && gpu.model == "H100")',
    f'cel.bind(model, {G}.model, device.driver == "x" || model == "H100")',
    f'cel.bind(model, {G}.model, model) == "H100"',
    'cel.bind(c, device.capacity, c["gpu.example.com"].memory.compareTo(quantity("20Gi")) >= 0)',
    'cel.bind(a, device.attributes, a["gpu.example.com"].sxm)',
    f'["H100", "H200"].exists_one(m, m == {G}.model)',
    f'["H100", "H200"].filter(m, m == {G}.model).size() > 0',
    f'{{"a": {G}.model}}["a"] == "H100"',
    f'{G}[{G}.model] == "x"',
    f'{G}.?model.value() == "H100"',
    f'{G}.?model.orValue("H100") == "H100"',
    f'(has({G}.model) ? {G}.model : {ELSEWHERE}.zone) == "H100"',
    f'({G}.sxm ? {G}.model : "A100").startsWith("H")',
    f'({G}.sxm && {G}.model == "H100") == true',
    f'({G}.sxm || {G}.index > 2) != ({ELSEWHERE}.zone == "a" && {G}.model == "H100")',
    f'[({G}.sxm ? 2 : 3), 1].exists(i, (i > 2 ? {G}.model : "H100") == "H100")',
    'device.driver == "gpu.example.com"',
    "true",
)
VALUES = {
    "model": [{"string": "H100"}, {"string": "A100"}],
    "sxm": [{"bool": True}, {"bool": False}],
    "index": [{"int": 1}, {"int": 3}],
    "other.example.com/zone": [{"string": "a"}, {"string": "b"}],
}


def device(chance: random.Random) -> Device:
    attributes = {name: chance.choice(values) for name, values in VALUES.items() if chance.random() < 0.5}
    capacity = {"memory": {"value": chance.choice(["24Gi", "50Gi", "80Gi"])}} if chance.random() < 0.5 else {}
    return Device.from_wire({"driver": "gpu.example.com", "attributes": attributes, "capacity": capacity})


def expression(chance: random.Random, depth: int) -> str:
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(ATOMS)
    parts = [expression(chance, depth - 1) for _ in range(3)]
    form = chance.choice(["({} && {})", "({} || {})", "!({})", "({} ? {} : {})", "{} && {} && {}", "{} || {}"])
    return form.format(*(f"({part})" for part in parts))


def test_a_guarded_selector_matches_the_same_devices_and_never_fails() -> None:
    chance = random.Random(1)
    failed = 0
    for _ in range(150):
        text = expression(chance, 3)
        safe = guarded(text)
        for _ in range(12):
            one = device(chance)
            before, after = compile_selector(text).evaluate(one), compile_selector(safe).evaluate(one)
            assert after.error is None, (text, safe, after.error)
            assert after.match == before.match, (text, safe, one)
            failed += before.error is not None
    assert failed > 150


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        (
            f'device.driver == "gpu.example.com" && {G}.model == "H100"',
            f'device.driver == "gpu.example.com" && "model" in {G} && {G}.model == "H100"',
        ),
        (
            f'{C}.memory.compareTo(quantity("40Gi")) >= 0',
            f'"memory" in {C} && {C}.memory.compareTo(quantity("40Gi")) >= 0',
        ),
        (
            f'{ELSEWHERE}.zone == "a" || {G}.sxm',
            f'("zone" in {ELSEWHERE} && {ELSEWHERE}.zone == "a" || "sxm" in {G} && {G}.sxm)',
        ),
        (f'!({G}.model == "H100")', f'"model" in {G} && !(({G}.model == "H100"))'),
    ],
)
def test_a_test_is_added_for_each_value_that_a_comparison_reads(text: str, safe: str) -> None:
    assert guarded(text) == safe


@pytest.mark.parametrize(
    "text",
    [
        f'has({G}.model) && {G}.model == "H100"',
        f'"model" in {G} && {G}["model"] == "H100"',
        f'"model" in {G} && {G}.model == "H100"',
        f'{G}.?model.orValue("") == "H100"',
        f'!("model" in {G})',
        'device.driver == "gpu.example.com"',
        "!device.allowMultipleAllocations",
    ],
)
def test_a_selector_that_cannot_fail_is_left_unchanged(text: str) -> None:
    assert guarded(text) == text


@pytest.mark.parametrize("text", ATOMS)
def test_no_comparison_fails_for_lack_of_a_value(text: str) -> None:
    chance = random.Random(2)
    safe = guarded(text)
    for _ in range(60):
        one = device(chance)
        before, after = compile_selector(text).evaluate(one), compile_selector(safe).evaluate(one)
        assert (after.error, after.match) == (None, before.match), (safe, one)


def test_a_selector_is_left_unchanged_when_kubernetes_would_not_accept_the_guarded_one() -> None:
    text = f'{G}.model == "{"x" * (MAX_EXPRESSION - 60)}"'
    assert len(text) <= MAX_EXPRESSION < len(text) + len(f'"model" in {G} && ')
    assert guarded(text) == text
