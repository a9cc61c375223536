# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelReplicas and ModelEndpoints of placements."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint import gateway_url, http_url
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlacedEngine, PlacedMember
from ansible_collections.modelplane.fleet.tests.written import model_endpoint, model_replica

REQUEST = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1, "selectors": [{"cel": "true"}]}


def deployment(**template: Any) -> dict[str, Any]:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "qwen", "namespace": "ml-team"},
        "spec": {"template": {"spec": {"engines": [engine("main")]}, **template}},
    }


def engine(name: str, *roles: str, **fields: Any) -> dict[str, Any]:
    members = [
        {
            "role": role,
            "nodeSelector": {"devices": [{"name": "gpu", "selectors": [{"cel": "true"}]}]},
            "template": {"spec": {"containers": [{"name": "engine", "image": "image"}]}},
        }
        for role in roles or ("Standalone",)
    ]
    return {"name": name, **fields, "members": members}


def placed(name: str, *pools: str) -> PlacedEngine:
    return PlacedEngine(name, tuple(PlacedMember(pool, (REQUEST,)) for pool in pools))


def test_only_what_is_set_is_copied() -> None:
    spec = model_replica(deployment(), "west", 0, [placed("main", "gpu")])["spec"]
    assert spec == {
        "clusterName": "west",
        "engines": [
            {
                "name": "main",
                "copies": 1,
                "members": [
                    {
                        "role": "Standalone",
                        "nodePoolName": "gpu",
                        "deviceRequests": [REQUEST],
                        "template": {"spec": {"containers": [{"name": "engine", "image": "image"}]}},
                    }
                ],
            }
        ],
    }


def test_all_that_is_set_is_copied() -> None:
    source = deployment(
        spec={
            "clusterSelector": {"matchLabels": {"region": "west"}},
            "modelCacheRef": {"name": "weights"},
            "serving": {"mode": "PrefillDecode"},
            "tolerations": [{"operator": "Exists"}],
            "engines": [engine("p", phase="Prefill", copies=2), engine("d", "Leader", "Worker", phase="Decode")],
        }
    )
    source["spec"]["template"]["spec"]["engines"][1]["members"][1]["worker"] = {"nodes": 3}
    spec = model_replica(source, "west", 1, [placed("d", "large", "small"), placed("p", "gpu")])["spec"]
    assert list(spec) == ["clusterName", "modelCacheRef", "serving", "engines"]
    assert spec["modelCacheRef"] == {"name": "weights"}
    assert spec["serving"] == {"mode": "PrefillDecode"}
    assert [(each["name"], each["copies"], each["phase"]) for each in spec["engines"]] == [
        ("p", 2, "Prefill"),
        ("d", 1, "Decode"),
    ]
    members = spec["engines"][1]["members"]
    assert [(each["role"], each["nodePoolName"], each.get("worker")) for each in members] == [
        ("Leader", "large", None),
        ("Worker", "small", {"nodes": 3}),
    ]


def test_serving_is_copied_word_by_word() -> None:
    config = {"plugins": [{"type": "x", "parameters": None}], "kind": "EndpointPickerConfig", "z": {}, "a": [1, 0.5]}
    serving = {
        "mode": "PrefillDecode",
        "picker": {"image": "picker:1", "args": ["--v=4"], "config": config},
        "sidecar": {"args": ["--kv-connector=sglang"]},
    }
    source = deployment(spec={"serving": serving, "engines": [engine("main")]})
    copied = model_replica(source, "west", 0, [placed("main", "gpu")])["spec"]["serving"]
    assert copied == serving
    assert list(copied["picker"]["config"]) == list(config)
    copied["picker"]["config"]["plugins"].clear()
    assert config["plugins"]


def test_a_member_without_device_requests_has_no_such_key() -> None:
    replica = model_replica(deployment(), "west", 0, [PlacedEngine("main", (PlacedMember("cpu"),))])
    assert "deviceRequests" not in replica["spec"]["engines"][0]["members"][0]


def test_managed_labels_win() -> None:
    labels = {"team": "a", "app.kubernetes.io/managed-by": "me", "modelplane.ai/cluster": "x", "modelplane.ai/y": "z"}
    replica = model_replica(deployment(), "west", 12, [placed("main", "gpu")])
    labelled = deployment(metadata={"labels": labels})
    labelled_replica = model_replica(labelled, "west", 12, [placed("main", "gpu")])
    managed = {
        "app.kubernetes.io/managed-by": "modelplane.fleet",
        "modelplane.ai/namespace": "ml-team",
        "modelplane.ai/deployment": "qwen",
        "modelplane.ai/replica": replica["metadata"]["name"],
        "modelplane.ai/cluster": "west",
        "modelplane.ai/replica-index": "12",
    }
    assert replica["metadata"]["labels"] == managed
    assert labelled_replica["metadata"]["labels"] == {"team": "a", **managed}


def test_names_longer_than_a_label_value_are_shortened_in_labels() -> None:
    source = deployment()
    source["metadata"]["name"] = "d" * 100
    labels = model_replica(source, "c" * 100, 0, [placed("main", "gpu")])["metadata"]["labels"]
    assert max(len(value) for value in labels.values()) <= 63


@pytest.mark.parametrize(
    "engines",
    [
        [],
        [placed("other", "gpu")],
        [placed("main", "gpu"), placed("other", "gpu")],
        [placed("main", "gpu"), placed("main", "gpu")],
        [placed("main", "gpu", "gpu")],
    ],
    ids=["none", "another", "one too many", "twice", "members"],
)
def test_a_placement_of_other_engines_is_refused(engines: list[PlacedEngine]) -> None:
    with pytest.raises(ValueError, match=r"the deployment has \{'main': 1\}"):
        model_replica(deployment(), "west", 0, engines)


def test_the_result_shares_nothing_with_its_source() -> None:
    source = deployment()
    before = deepcopy(source)
    request = deepcopy(REQUEST)
    replica = model_replica(source, "west", 0, [PlacedEngine("main", (PlacedMember("gpu", (request,)),))])
    member = replica["spec"]["engines"][0]["members"][0]
    member["template"]["spec"]["containers"][0]["image"] = "changed"
    member["deviceRequests"][0]["selectors"].clear()
    assert source == before
    assert request == REQUEST


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("203.0.113.10", "203.0.113.10"),
        ("lb.example.com", "lb.example.com"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("2001:DB8:0:0::1", "[2001:DB8:0:0::1]"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("::ffff:203.0.113.10", "[::ffff:203.0.113.10]"),
    ],
)
def test_h6_the_endpoint_of_a_gateway(make_replica: Callable[..., dict[str, Any]], address: str, host: str) -> None:
    endpoint = model_endpoint(make_replica(), http_url(address))
    assert endpoint["spec"] == {
        "url": f"http://{host}/ml-team/qwen3-8b-6e732e38e8/v1",
        "rewritePath": "/ml-team/qwen3-8b-6e732e38e8/",
    }


HTTP = {"protocol": "HTTP", "port": 80}
HTTPS = {"protocol": "HTTPS", "port": 443, "hostname": "east.example.com"}


@pytest.mark.parametrize(
    ("listeners", "url"),
    [
        ([], "http://[2001:db8::1]"),
        ([HTTP], "http://[2001:db8::1]"),
        ([HTTPS, HTTP], "http://[2001:db8::1]"),
        ([{**HTTP, "port": 8080}, HTTPS], "http://[2001:db8::1]:8080"),
        ([HTTPS], "https://east.example.com"),
        ([{**HTTPS, "port": 8443}], "https://east.example.com:8443"),
        # Requests by the address are none for a listener with a name.
        ([{**HTTP, "hostname": "east.example.com"}, HTTPS], "https://east.example.com"),
        ([{**HTTPS, "hostname": "*.example.com"}, HTTPS], "https://east.example.com"),
        ([{**HTTPS, "hostname": "*.example.com"}], ""),
        ([{"protocol": "HTTPS", "port": 443}], ""),
        ([{"protocol": "TCP", "port": 80}], ""),
    ],
)
def test_the_url_of_a_gateway_follows_its_listeners(listeners: list[dict[str, Any]], url: str) -> None:
    assert gateway_url(listeners, "2001:db8::1") == url


def test_an_endpoint_of_a_replica_written_by_hand_is_labelled_as_ours(
    make_replica: Callable[..., dict[str, Any]],
) -> None:
    replica = make_replica(name="by-hand")
    replica["metadata"]["labels"] = {"team": "a"}
    endpoint = model_endpoint(replica, "http://203.0.113.10")
    assert endpoint["metadata"] == {
        "name": "by-hand",
        "namespace": "ml-team",
        "labels": {
            "team": "a",
            "app.kubernetes.io/managed-by": "modelplane.fleet",
            "modelplane.ai/namespace": "ml-team",
            "modelplane.ai/replica": "by-hand",
        },
    }
