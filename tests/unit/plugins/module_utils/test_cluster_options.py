# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The arguments for clusters: what becomes of them, and that their documentation says the same."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.doc_fragments.clusters import ModuleDocFragment
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.cluster_options import (
    CLUSTERS,
    ArgumentsError,
    cloud_connections,
    connections,
    control_connection,
    forks,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.login import Eks
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.clusters import CloudConnection
from ansible_collections.modelplane.fleet.plugins.module_utils.google.login import Gke
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import (
    Connection,
    SecretRef,
)


def differences(documented: dict[str, Any], taken: dict[str, Any], where: str = "") -> list[str]:
    """Return where options and their documentation differ."""
    found = [f"{where}{name}" for name in set(documented) ^ set(taken)]
    for name in set(documented) & set(taken):
        one, two = documented[name], taken[name]
        same = ("type", "elements", "choices", "default", "required")
        found += [f"{where}{name}.{key}" for key in same if one.get(key) != two.get(key)]
        found += differences(one.get("suboptions", {}), two.get("options", {}), f"{where}{name}.")
    return found


def test_the_documentation_says_what_is_taken() -> None:
    documented = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["options"]
    assert differences(documented, CLUSTERS) == []


def test_secrets_are_kept_out_of_logs() -> None:
    for options in (CLUSTERS["clusters"]["options"], CLUSTERS["control"]["options"]):
        assert {name for name, option in options.items() if option.get("no_log")} == {"token", "kubeconfig_text"}


def test_entries_become_connections() -> None:
    nothing = dict.fromkeys(CLUSTERS["control"]["options"])
    params = {
        "clusters": [
            {**nothing, "name": "a", "kubeconfig": "/k", "context": "c", "proxy": "http://p"},
            {"name": "b", "eks": {"cluster": "x", "region": "r", "profile": None, "role_arn": None}},
            {"name": "c", "gke": {"project": "p", "location": "l", "cluster": "x"}, "verify": False},
            {"name": "d", "secret": {"namespace": "n", "name": "s", "key": "config"}},
            {"name": "e", "gke": {"project": None, "location": "l", "cluster": "x"}},
        ],
        "control": {**nothing, "verify": True},
        "timeout": 5,
        "retries": 0,
    }
    limits: dict[str, Any] = {"timeout": 5.0, "retries": 0}
    assert connections(params) == {
        "a": Connection("a", kubeconfig="/k", context="c", proxy="http://p", **limits),
        "b": Connection("b", login=Eks("x", "r"), **limits),
        "c": Connection("c", login=Gke("p", "l", "x"), verify=False, **limits),
        "d": Connection("d", secret=SecretRef("n", "s", "config"), **limits),
        "e": Connection("e", login=Gke("", "l", "x"), **limits),
    }
    assert control_connection(params) == Connection("control", standard=True, **limits)
    assert control_connection({"control": None}) is None
    assert connections({}) == {}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"clusters": [{"name": "a"}, {"name": "a"}]}, "clusters[1].name: there are two clusters a"),
        ({"clusters": [{"name": ""}]}, "clusters[0].name is empty"),
        (
            {"clusters": [{"name": "a", "eks": {"cluster": "x"}, "gke": {"cluster": "x", "location": "l"}}]},
            "a: eks and gke are given. Give one way to reach the cluster",
        ),
        ({"clusters": [], "timeout": 0}, "timeout: "),
        ({"clusters": [], "timeout": float("inf")}, "timeout: "),
        ({"clusters": [], "timeout": float("nan")}, "timeout: "),
        ({"clusters": [], "retries": -1}, "retries: "),
    ],
)
def test_arguments_that_are_none(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentsError) as caught:
        connections(params)
    assert message in str(caught.value)


def test_forks() -> None:
    assert forks({"forks": 3}) == 3
    with pytest.raises(ArgumentsError, match="at least 1"):
        forks({"forks": 0})


def test_ways_into_clouds_are_those_of_clusters_that_others_did_not_create() -> None:
    place = {"cluster": "x", "region": "r"}
    params = {
        "clusters": [
            {"name": "a", "eks": {**place, "profile": None, "role_arn": ""}, "gke": None},
            {"name": "b", "eks": place},
            {"name": "c", "kubeconfig": "/k", "eks": None},
            {"name": "d", "gke": {"cluster": "x", "location": "l"}},
        ]
    }
    assert cloud_connections(params, ["b"]) == {
        "a": CloudConnection("eks", place),
        "d": CloudConnection("gke", {"cluster": "x", "location": "l"}),
    }
    assert cloud_connections({"clusters": None}, []) == {}
