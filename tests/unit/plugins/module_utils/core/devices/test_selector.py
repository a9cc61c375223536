# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Selectors against the verdicts of Kubernetes' own code, and what the interface promises."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.checker import check
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.estimate import estimate
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.evaluator import compile_checked
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.cel.parser import parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.device import Device
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.explain import explain
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.limits import MAX_COST
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import (
    Selector,
    SelectorError,
    compile_selector,
)
from hypothesis import given
from hypothesis import strategies as st

# Seconds after which work that should be bounded is taken to have no end; how fast it is, is measured elsewhere.
ENDLESS = 60

DATA = next(parent for parent in Path(__file__).resolve().parents if parent.name == "tests")
DEVICES = {
    name: Device.from_wire(wire) for name, wire in json.loads((DATA / "data/cel/devices.json").read_text()).items()
}
GPU = DEVICES["gpu"]

# Where the verdict is not Kubernetes', with the reason.
KNOWN_DIFFERENCES = {
    'google.protobuf.Duration{seconds:1} == duration("1s")': "messages are refused",
    "google.protobuf.Int64Value{value:1} == 1": "messages are refused",
    "{[1]:1}.size()==1": "a list is no key",
    '("" + "α").findAll("" + "\\\\p{Greek}").size() == 1': "scripts are not known",
}


def verdict(expression: str, device: Device) -> str:
    try:
        found = compile_selector(expression).evaluate(device)
    except SelectorError:
        return "compile-error"
    return "match" if found.match else "eval-error" if found.error else "no-match"


def recorded() -> list[dict[str, Any]]:
    with gzip.open(DATA / "data/cel/kubernetes.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_too_complex(case: Mapping[str, Any]) -> bool:
    """Return whether the API server refuses an expression because of its estimated cost."""
    return int(case.get("estimate", 0)) > MAX_COST


def of_any_cost(expression: str) -> Selector:
    """Return a selector that the API server would refuse because of its estimated cost."""
    tree = parse(expression)
    return Selector(expression, tree, compile_checked(check(tree)))


def evaluated(expression: str, device: Device) -> str:
    """Return the verdict on an expression that the API server refuses."""
    found = of_any_cost(expression).evaluate(device)
    return "match" if found.match else "eval-error" if found.error else "no-match"


def test_verdicts_are_those_of_kubernetes() -> None:
    cases = recorded()
    different = {
        case["expression"]
        for case in cases
        if (evaluated if is_too_complex(case) else verdict)(case["expression"], DEVICES[case["device"]])
        != case["verdict"]
    }
    assert len(cases) > 1000
    assert different == set(KNOWN_DIFFERENCES)


def test_estimated_costs_are_at_most_those_of_kubernetes() -> None:
    recorded_costs = {case["expression"]: int(case["estimate"]) for case in recorded() if "estimate" in case}
    equal = []
    wrong = {}
    for expression, desired in recorded_costs.items():
        if expression not in KNOWN_DIFFERENCES and not re.search(r"[\[({!-]{100}", expression):
            cost = estimate(check(parse(expression)))
            if cost == desired or min(cost, desired) > 2**32:
                equal.append(expression)
            elif cost > desired or (cost > MAX_COST) != (desired > MAX_COST):
                wrong[expression] = (cost, desired)
    assert wrong == {}
    assert len(equal) > 1000


def test_selectors_that_the_api_server_refuses_as_too_complex_are_errors() -> None:
    cases = [case for case in recorded() if is_too_complex(case) and case["expression"] not in KNOWN_DIFFERENCES]
    assert len(cases) > 100
    for case in cases:
        with pytest.raises(SelectorError, match="too complex: Kubernetes estimates a cost of"):
            compile_selector(case["expression"])


@pytest.mark.parametrize(
    ("accepted", "refused"),
    [
        # The size of a value is known only if the domain is an index: a pattern on a field of any size has no bound.
        ('device.attributes["a"].x.matches("^H")', 'device.attributes.a.x.matches("^H")'),
        ('["a"].all(part, part.matches("^a"))', 'device.attributes["a"].x.split("-").all(part, part.matches("^a"))'),
        (
            "lists.range(100).all(i, lists.range(100).all(j, i < j))",
            "lists.range(500).all(i, lists.range(500).all(j, i < j))",
        ),
        (
            'device.attributes.all(d, device.attributes[d].all(k, k != "x"))',
            f"{'device.attributes.all(a, ' * 4}a != ''{')' * 4}",
        ),
    ],
)
def test_the_estimated_cost_decides(accepted: str, refused: str) -> None:
    compile_selector(accepted)
    with pytest.raises(SelectorError, match="accepts at most 1,000,000"):
        compile_selector(refused)


def test_conformance_cases() -> None:
    cases = json.loads((DATA / "conformance/cases/cel-cases.json").read_text())["cases"]
    wrong = []
    for case in cases:
        device = Device.from_wire(case["device"])
        found = verdict(case["expression"], device)
        desired = {case["expect"]} if case["kubernetes"] is None else {case["kubernetes"]["verdict"]}
        matches = "match" in desired
        if found not in desired and (matches or found == "match"):
            wrong.append((case["id"], found, desired))
    assert wrong == []


@pytest.mark.parametrize(
    ("expression", "line", "column"),
    [
        ("(true", 1, 6),
        ("true &&\n  nope", 2, 3),
        ("1 == 1.0", 1, 3),
        ('"abc', 1, 1),
        ("device.nope == 1", 1, 8),
        ("true and false", 1, 6),
        ("x" * 10241, 1, 1),
    ],
)
def test_an_error_has_its_place(expression: str, line: int, column: int) -> None:
    with pytest.raises(SelectorError) as caught:
        compile_selector(expression)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert "^" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(100).all(x, lists.range(100).all(y, lists.range(100).all(z, true)))",
        "lists.range(1000000000).size() > 0",
        '["a"].map(x, lists.range(100000).map(i, x + x + x + x).join()).size() > 0',
        # 40 times a list of two that are the same: comparing it would take 2^40 steps.
        "cel.bind(a0, [1], "
        + "".join(f"cel.bind(a{i}, [dyn(a{i - 1}), dyn(a{i - 1})], " for i in range(1, 41))
        + "a40 == a40"
        + ")" * 41,
        "cel.bind(a0, [1], "
        + "".join(f"cel.bind(a{i}, a{i - 1} + a{i - 1}, " for i in range(1, 61))
        + "a60.size() > 0"
        + ")" * 61,
        'lists.range(400000).all(x, "abc".contains("b") && x >= 0)',
    ],
)
def test_runaway_work_is_stopped(expression: str) -> None:
    begun = time.process_time()
    found = of_any_cost(expression).evaluate(GPU)
    assert not found.match
    assert "costs more" in str(found.error)
    assert time.process_time() - begun < ENDLESS


def test_a_costly_pattern_takes_linear_time() -> None:
    begun = time.process_time()
    assert not of_any_cost('lists.range(9000).map(i, "a").join().matches("(a?){500}a{500}b")').evaluate(GPU).match
    assert time.process_time() - begun < ENDLESS


def test_nesting_does_not_depend_on_the_caller() -> None:
    expression = "(" * 249 + "true" + ")" * 249

    def deep(frames: int) -> bool:
        return deep(frames - 1) if frames else compile_selector(expression).evaluate(GPU).match

    compile_selector.cache_clear()
    limit = sys.getrecursionlimit()
    assert deep(500)
    assert sys.getrecursionlimit() == limit


def test_threads_share_a_selector() -> None:
    selector = compile_selector('lists.range(50).map(x, x * 2).exists(x, x == device.attributes["d"].n)')
    devices = [
        Device.from_wire({"name": "d", "driver": "d", "attributes": {"n": {"int": number}}}) for number in range(100)
    ]
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(number for number in range(100) if selector.evaluate(devices[number]).match != (number % 2 == 0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


ATTRIBUTES = 'device.attributes["gpu.nvidia.com"]'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", None),
        (
            'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("200Gi")) >= 0',
            'capacity memory 141Gi < 200Gi in `…compareTo(quantity("200Gi")) >= 0`',
        ),
        (
            f'device.driver == "gpu.nvidia.com" && {ATTRIBUTES}.architecture == "Ada"',
            f'attribute architecture is "Hopper", not "Ada" in `{ATTRIBUTES}.architecture == "Ada"`',
        ),
        (
            'device.driver == "gpu.amd.com"',
            'driver is gpu.nvidia.com, not gpu.amd.com in `device.driver == "gpu.amd.com"`',
        ),
        (
            'device.attributes["x.com"].foo == 1',
            'no attribute foo in domain x.com (it has none) in `device.attributes["x.com"].foo == 1`',
        ),
        (f"{ATTRIBUTES}.mig", f"attribute mig is false in `{ATTRIBUTES}.mig`"),
        (f"{ATTRIBUTES}.mig == true", f"attribute mig is false, not true in `{ATTRIBUTES}.mig == true`"),
        (f"{ATTRIBUTES}.numaNode > 3", f"attribute numaNode 1 < 3 in `{ATTRIBUTES}.numaNode > 3`"),
    ],
)
def test_explanations(expression: str, expected: str | None) -> None:
    assert explain(compile_selector(expression), GPU) == expected


def test_explanations_are_short_and_given_for_all_that_do_not_match() -> None:
    for case in recorded():
        if case["verdict"] == "compile-error" or case["expression"] in KNOWN_DIFFERENCES or is_too_complex(case):
            continue
        found = explain(compile_selector(case["expression"]), DEVICES[case["device"]])
        assert (found is None) == (case["verdict"] == "match")
        assert found is None or (len(found) <= 165 and "\n" not in found)


def test_an_invalid_device_matches_nothing() -> None:
    device = Device.from_wire({"name": "g", "driver": "d", "attributes": {"v": {"version": "1.2"}}})
    selector = compile_selector("true")
    assert not selector.evaluate(device).match
    assert "1.2" in str(explain(selector, device))


PIECES = st.sampled_from(
    [
        *("device", ".driver", ".attributes", '["gpu.nvidia.com"]', ".mig", "==", "&&", "||", "!", "(", ")", "[", "]"),
        *("1", "1u", "1.5", '"a"', "b'a'", "true", "null", "dyn(", "x", ".all(x,", ".map(x,", "in", "+", "-", "?", ":"),
        *("{", "}", ",", ".?a", "[?0]", ".orValue(", "cel.bind(x,", ".size()", 'quantity("1Gi")', "'", '"', "\\", "é"),
    ]
)


@given(st.lists(PIECES, max_size=14).map(" ".join))
def test_no_text_ends_in_a_traceback(expression: str) -> None:
    assert verdict(expression, GPU) in ("match", "no-match", "eval-error", "compile-error")


VALUES = st.sampled_from(
    [
        *(
            "1",
            '"a"',
            "b'a'",
            "1.5",
            "1u",
            "true",
            "null",
            "[1]",
            '{"a": 1}',
            "optional.of(1)",
            "optional.none()",
            "int",
        ),
        *('quantity("1")', 'semver("1.0.0")', 'duration("1s")', "timestamp(0)", 'ip("::1")', 'url("/a")'),
    ]
)
METHODS = st.sampled_from(
    [
        "size",
        "value",
        "hasValue",
        "first",
        "last",
        "unwrapOpt",
        "lowerAscii",
        "trim",
        "reverse",
        "sort",
        "distinct",
        "isSorted",
        "sum",
        "min",
        "max",
        "flatten",
        "join",
        "asInteger",
        "isInteger",
        "major",
        "getScheme",
        "getQuery",
        "family",
        "prefixLength",
        "masked",
        "getHours",
        "getFullYear",
        "ip",
    ]
)


@given(VALUES, METHODS)
def test_methods_on_values_of_unknown_type_never_raise(value: str, method: str) -> None:
    assert verdict(f"dyn({value}).{method}() == dyn({value})", GPU) != ""
    assert verdict(f"dyn([dyn({value})]).{method}() == dyn({value})", GPU) != ""


@given(
    VALUES, VALUES, st.sampled_from(["compareTo", "add", "startsWith", "matches", "indexOf", "containsIP", "orValue"])
)
def test_methods_of_two_values_never_raise(value: str, other: str, method: str) -> None:
    assert verdict(f"dyn({value}).{method}(dyn({other})) == dyn({other})", GPU) != ""
    assert verdict(f"dyn({value}) + dyn({other}) == dyn({other}) || dyn({value}) < dyn({other})", GPU) != ""


@pytest.mark.parametrize(
    ("expression", "without", "with_other_domains"),
    [
        ('cel.bind(d, device.attributes, d["zz"].size() == 0)', "eval-error", "match"),
        ('cel.bind(d, device.attributes, has(d["zz"].m))', "eval-error", "no-match"),
        ('cel.bind(c, device.capacity, "m" in c["zz"])', "eval-error", "no-match"),
        ('cel.bind(c, cel.bind(d, device.capacity, d), c["zz"].size() == 0)', "eval-error", "match"),
        ('optional.of(device.attributes).optMap(d, d["zz"].size() == 0).orValue(false)', "eval-error", "match"),
        ('cel.bind(c, device.capacity["zz"], c.size() == 0)', "match", "match"),
        ('cel.bind(d, device, d.attributes["zz"].size() == 0)', "match", "match"),
        ('[device.attributes].exists(d, d["zz"].size() == 0)', "match", "match"),
    ],
)
def test_a_variable_with_an_empty_map_has_no_default(expression: str, without: str, with_other_domains: str) -> None:
    """The verdicts are those of Kubernetes 1.36."""
    assert verdict(expression, Device.from_wire({"driver": "g.x"})) == without
    other = {"driver": "g.x", "attributes": {"m": {"string": "H"}}, "capacity": {"c": {"value": "1"}}}
    assert verdict(expression, Device.from_wire(other)) == with_other_domains
