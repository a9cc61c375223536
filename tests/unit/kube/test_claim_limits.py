# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A real API server accepts what is at a limit of claims, and refuses what is over it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices import limits
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import (
    SelectorError,
    compile_selector,
)
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from kubernetes.client.exceptions import ApiException


def accepts(cluster: ControlPlane, devices: dict[str, Any]) -> bool:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "limits", "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }
    try:
        cluster.objects.apply([template])
    except ApiException as error:
        if error.status != 422:
            raise
        return False
    cluster.objects.delete("resource.k8s.io/v1", "ResourceClaimTemplate", "limits", "default")
    return True


def request(name: str = "gpu", selectors: tuple[str, ...] = ()) -> dict[str, Any]:
    expressions = [{"cel": {"expression": each}} for each in selectors]
    return {"name": name, "exactly": {"deviceClassName": "a.b", "selectors": expressions}}


def attribute(name: str) -> dict[str, Any]:
    return {"requests": [request()], "constraints": [{"matchAttribute": name}]}


@pytest.mark.parametrize(
    ("at", "over"),
    [
        (attribute("a" * limits.MAX_DOMAIN + "/b"), attribute("a" * (limits.MAX_DOMAIN + 1) + "/b")),
        (attribute("a.b/" + "c" * limits.MAX_ID), attribute("a.b/" + "c" * (limits.MAX_ID + 1))),
    ],
    ids=["domain", "name"],
)
def test_limits_of_a_claim(cluster: ControlPlane, at: dict[str, Any], over: dict[str, Any]) -> None:
    assert accepts(cluster, at)
    assert not accepts(cluster, over)


def _long(size: int) -> str:
    return f'device.driver == "{"x" * (size - 19)}"'


@pytest.mark.parametrize(
    "expression",
    [
        _long(limits.MAX_EXPRESSION),
        _long(limits.MAX_EXPRESSION + 1),
        'device.attributes["a"].x.matches("^H100")',
        "device.attributes.a.x.matches('^H100')",
        'device.attributes["a"].x.split("-").all(part, part.matches("^a"))',
        "lists.range(574).all(i, lists.range(574).all(j, i < j))",
        "lists.range(300).all(i, lists.range(300).all(j, i < j))",
        *(f"{'device.attributes.all(a, ' * depth}a != ''{')' * depth}" for depth in (1, 2, 3, 4)),
    ],
)
def test_a_selector_is_accepted_here_as_it_is_there(cluster: ControlPlane, expression: str) -> None:
    try:
        compile_selector(expression)
        accepted = True
    except SelectorError:
        accepted = False
    assert accepts(cluster, {"requests": [request(selectors=(expression,))]}) is accepted
