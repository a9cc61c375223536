# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Variables of the inventory -> arguments of the modules: what is accepted, refused, and never shown."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options, connections
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import names as gke_names
from hypothesis import given
from hypothesis import strategies as st

gke_name = functools.partial(gke_names.cluster_name, "modelplane-system")
SECRET = {"namespace": "modelplane-system", "name": "west", "key": "kubeconfig"}
EKS = {"cluster": "prod", "region": "us-west-2"}
GKE = {"project": "my-project", "location": "us-central1", "cluster": "prod"}


def kubernetes(**variables: Any) -> dict[str, Any]:
    return {"fleet_target": "kubernetes", **variables}


ACCEPTED: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "nothing said": ({}, None),
    "files only": ({"fleet_target": "directory"}, None),
    "files only, whatever else is said": ({"fleet_target": "directory", "fleet_connection": {"eks": EKS}}, None),
    "shorthand": (kubernetes(fleet_kubeconfig="/k"), {"kubeconfig": "/k"}),
    "shorthands": (kubernetes(fleet_kubeconfig="/k", fleet_context="c"), {"kubeconfig": "/k", "context": "c"}),
    "a context of the user's kubeconfig": (kubernetes(fleet_context="c"), {"context": "c"}),
    "a Secret": (kubernetes(fleet_connection={"secret": SECRET}), {"secret": SECRET}),
    "EKS": (kubernetes(fleet_connection={"eks": EKS}), {"eks": EKS}),
    "GKE": (kubernetes(fleet_connection={"gke": GKE}), {"gke": GKE}),
    "server and token": (
        kubernetes(fleet_connection={"server": "https://k:6443", "token": "t", "verify": False}),
        {"server": "https://k:6443", "token": "t", "verify": False},
    ),
    "EKS at a known address": (
        kubernetes(fleet_connection={"eks": EKS, "server": "https://k"}),
        {"eks": EKS, "server": "https://k"},
    ),
    "another name": (kubernetes(fleet_cluster="eks-1", fleet_kubeconfig="/k"), {"name": "eks-1", "kubeconfig": "/k"}),
    "empty values are absent": (
        kubernetes(fleet_connection={"kubeconfig": "/k", "context": "", "secret": None}, fleet_kubeconfig=""),
        {"kubeconfig": "/k"},
    ),
    "the shorthand replaces the way, and keeps the proxy": (
        kubernetes(fleet_connection={"eks": EKS, "proxy": "http://p"}, fleet_kubeconfig="/k"),
        {"kubeconfig": "/k", "proxy": "http://p"},
    ),
    "the shorthand replaces a server with its token and CA": (
        kubernetes(fleet_connection={"server": "https://k", "token": "t", "ca_file": "/ca"}, fleet_kubeconfig="/k"),
        {"kubeconfig": "/k"},
    ),
    "the context of another kubeconfig goes with it": (
        kubernetes(fleet_connection={"kubeconfig": "/old", "context": "old"}, fleet_kubeconfig="/k"),
        {"kubeconfig": "/k"},
    ),
    "the context is chosen in the kubeconfig that is there": (
        kubernetes(fleet_connection={"secret": SECRET, "context": "old"}, fleet_context="c"),
        {"secret": SECRET, "context": "c"},
    ),
    "a context replaces a way that has none": (
        kubernetes(fleet_connection={"eks": EKS}, fleet_context="c"),
        {"context": "c"},
    ),
    "a relative path starts from the inventory": (
        kubernetes(fleet_kubeconfig="keys/k", inventory_dir="/fleet"),
        {"kubeconfig": "/fleet/keys/k"},
    ),
    "also further in": (
        kubernetes(fleet_connection={"gke": {**GKE, "credentials_file": "../sa.json"}}, inventory_dir="/fleet"),
        {"gke": {**GKE, "credentials_file": "/sa.json"}},
    ),
    "the login of a role wins over what is written, and that over an account": (
        kubernetes(
            fleet_connection={"eks": {**EKS, "profile": "written", "role_arn": "written"}},
            eks_cluster_accounts={"default": {"profile": "of-account", "role_arn": "of-account"}},
            eks_cluster_profile="of-role",
        ),
        {"eks": {**EKS, "profile": "of-role", "role_arn": "written"}},
    ),
    "a project that is written wins, and all else of a role does": (
        kubernetes(
            fleet_connection={"gke": {**GKE, "credentials_file": "written.json"}},
            gke_cluster_accounts={"default": {"project": "of-account"}},
            gke_cluster_project="of-role",
            gke_cluster_credentials_file="keys/role.json",
            gke_cluster_ca_file="ca.pem",
            gke_cluster_endpoints={"container": "https://gke", "compute": "https://compute"},
            inventory_dir="/fleet",
        ),
        {
            "gke": {
                **GKE,
                "credentials_file": "/fleet/keys/role.json",
                "ca_file": "/fleet/ca.pem",
                "endpoint": "https://gke",
            }
        },
    ),
    "an account is that of the credentials": (
        kubernetes(
            fleet_connection={"gke": {"location": "us-central1", "cluster": "prod"}},
            fleet_credentials="production",
            gke_cluster_accounts={"production": {"project": "p", "credentials_file": "/p.json"}, "default": {}},
        ),
        {"gke": {"location": "us-central1", "cluster": "prod", "project": "p", "credentials_file": "/p.json"}},
    ),
    "a project may be that of the login": (
        kubernetes(fleet_connection={"gke": {"location": "us-central1", "cluster": "prod"}}),
        {"gke": {"location": "us-central1", "cluster": "prod"}},
    ),
    "without an inventory folder it stays": (kubernetes(fleet_kubeconfig="k", inventory_dir=None), {"kubeconfig": "k"}),
}


@pytest.mark.parametrize(("variables", "expected"), ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(variables: dict[str, Any], expected: dict[str, Any] | None) -> None:
    found = connections.cluster_connection("west", variables)
    assert found == (None if expected is None else {"name": "west", **expected})


def test_what_is_wrong_with_an_account_is_reported_there() -> None:
    accounts = {"default": {"credential_file": "/x"}}
    variables = kubernetes(fleet_connection={"gke": GKE}, gke_cluster_accounts=accounts)
    with pytest.raises(connections.ConnectionsError) as reported:
        connections.cluster_connection("west", variables)
    assert "west: gke_cluster_accounts.default.credential_file is not a known key" in "\n".join(reported.value.problems)
    assert "credentials_file" in str(reported.value)


def test_the_keys_are_those_of_the_modules() -> None:
    assert cluster_options.CLUSTERS["control"]["options"] == connections.OPTIONS


def test_environment_and_home_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("KEYS", "/keys")
    for written, expected in (("~/k", "/home/someone/k"), ("$KEYS/k", "/keys/k")):
        found = connections.cluster_connection("west", kubernetes(fleet_kubeconfig=written, inventory_dir="/fleet"))
        assert found == {"name": "west", "kubeconfig": expected}


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "target unknown": (
        {"fleet_target": "kubernets"},
        'fleet_target is "kubernets": it must be kubernetes or directory',
    ),
    "target not said": ({"fleet_kubeconfig": "/k"}, "fleet_kubeconfig is set, but fleet_target is not"),
    "no way": (kubernetes(), "there is no connection to the cluster"),
    "no way but a proxy": (kubernetes(fleet_connection={"proxy": "http://p"}), "there is no connection to"),
    "unknown key": (
        kubernetes(fleet_connection={"kubeconf": "/k"}),
        "kubeconf is not a known key. Did you mean kubeconfig",
    ),
    "unknown key further in": (
        kubernetes(fleet_connection={"eks": {**EKS, "profil": "p"}}),
        "eks.profil is not a known",
    ),
    "missing key": (kubernetes(fleet_connection={"gke": {"project": "p", "cluster": "c"}}), "gke.location is missing"),
    "two methods": (
        kubernetes(fleet_connection={"eks": EKS, "secret": SECRET}),
        "secret and eks are different methods",
    ),
    "three ways": (
        kubernetes(fleet_connection={"eks": EKS, "secret": SECRET, "kubeconfig": "/k"}),
        "kubeconfig and secret and eks are different methods",
    ),
    "context of a server": (
        kubernetes(fleet_connection={"server": "https://k", "context": "c"}),
        "context selects from a kubeconfig, and cannot be combined with server",
    ),
    "token for EKS": (
        kubernetes(fleet_connection={"eks": EKS, "token": "t"}),
        "token needs server, and cannot be combined with eks",
    ),
    "token alone": (
        kubernetes(fleet_connection={"token": "t0p-secret"}),
        "token needs server",
    ),
    "two CAs": (
        kubernetes(fleet_connection={"server": "https://k", "ca_file": "/a", "ca_text": "b"}),
        "ca_file and ca_text are alternatives",
    ),
    "text as a connection": (kubernetes(fleet_connection="t0p-secret"), "fleet_connection must be a mapping"),
    "number as a path": (kubernetes(fleet_connection={"kubeconfig": 7}), "kubeconfig must be text: write it in quotes"),
    "mapping as a shorthand": (kubernetes(fleet_kubeconfig={"a": "t0p-secret"}), "fleet_kubeconfig must be text"),
    "verify": (
        kubernetes(fleet_connection={"server": "https://k", "verify": "t0p-secret"}),
        "verify must be true or false",
    ),
}


@pytest.mark.parametrize(("variables", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(connections.ConnectionsError) as caught:
        connections.cluster_connection("west", variables)
    assert words in str(caught.value)
    assert str(caught.value).startswith("west: ")
    assert "t0p-secret" not in str(caught.value)


def test_all_problems_of_all_hosts_are_reported() -> None:
    hosts = {
        "a": kubernetes(fleet_connection={"kubeconf": "/k", "eks": EKS, "tokn": "x"}),
        "b": kubernetes(),
        "c": {"fleet_target": "directory"},
        "d": kubernetes(fleet_kubeconfig="/k", fleet_cluster="x"),
        "e": kubernetes(fleet_kubeconfig="/k", fleet_cluster="x"),
    }
    with pytest.raises(connections.ConnectionsError) as caught:
        connections.clusters(hosts)
    assert [line.partition(":")[0] for line in caught.value.problems] == ["a", "a", "b", "e"]
    assert "fleet_cluster is x, as of host d" in caught.value.problems[-1]


def test_a_thousand_problems_are_not_reported_one_by_one() -> None:
    with pytest.raises(connections.ConnectionsError) as caught:
        connections.clusters({f"host-{number}": kubernetes() for number in range(1000)})
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 980 more"


def test_clusters_keep_the_order_of_hosts() -> None:
    names = ["b", "a", "c"]
    found = connections.clusters({name: kubernetes(fleet_context=name) for name in names})
    assert [each["name"] for each in found] == names


CONTROLS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "none": ({}, None),
    "empty": ({"fleet_control": {}, "fleet_control_kubeconfig": ""}, None),
    "kubeconfig": ({"fleet_control": {"kubeconfig": "k"}, "inventory_dir": "/fleet"}, {"kubeconfig": "/fleet/k"}),
    "shorthand": ({"fleet_control_kubeconfig": "/k"}, {"kubeconfig": "/k"}),
    "shorthand wins": (
        {"fleet_control": {"eks": EKS, "proxy": "http://p"}, "fleet_control_kubeconfig": "/k"},
        {"kubeconfig": "/k", "proxy": "http://p"},
    ),
    "with a token": (
        {"fleet_control": {"server": "https://k", "token": "t"}},
        {"server": "https://k", "token": "t"},
    ),
}


@pytest.mark.parametrize(("variables", "expected"), CONTROLS.values(), ids=CONTROLS)
def test_control(variables: dict[str, Any], expected: dict[str, Any] | None) -> None:
    assert connections.control_connection("control", variables) == expected


BAD_CONTROLS: dict[str, tuple[dict[str, Any], str]] = {
    "a Secret on itself": (
        {"fleet_control": {"secret": SECRET}},
        "fleet_control.secret is on the control cluster itself",
    ),
    "unknown key": ({"fleet_control": {"kubecfg": "x"}}, "fleet_control.kubecfg is not a known key"),
    "no way": ({"fleet_control": {"verify": True}}, "has no connection to the control cluster"),
    "two methods": ({"fleet_control": {"eks": EKS, "gke": GKE}}, "eks and gke are different methods"),
    "list": ({"fleet_control_kubeconfig": ["/k"]}, "fleet_control_kubeconfig must be text, is a list"),
}


@pytest.mark.parametrize(("variables", "words"), BAD_CONTROLS.values(), ids=BAD_CONTROLS)
def test_control_refused(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(connections.ConnectionsError) as caught:
        connections.control_connection("control", variables)
    assert words in str(caught.value)


SHOWN: dict[str, tuple[dict[str, Any], str]] = {
    "token": ({"server": "https://k", "token": "t0p-secret"}, "control.token is a secret"),
    "kubeconfig_text": ({"kubeconfig_text": "t0p-secret"}, "control.kubeconfig_text is a secret"),
    "proxy": ({"kubeconfig": "/k", "proxy": "http://me:t0p-secret@p"}, "control.proxy must not hold a user"),
    "server": ({"server": "https://me:t0p-secret@k"}, "control.server must not hold a user"),
}


@pytest.mark.parametrize(("value", "words"), SHOWN.values(), ids=SHOWN)
def test_what_becomes_a_variable_holds_no_secret(value: dict[str, Any], words: str) -> None:
    with pytest.raises(connections.ConnectionsError) as caught:
        connections.checked_control("control", value, "/fleet")
    assert words in str(caught.value)
    assert "t0p-secret" not in str(caught.value)


def cluster(**source: Any) -> api.InferenceCluster:
    found = api.parse(
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceCluster",
            "metadata": {"name": "eks-us-west"},
            "spec": {"cluster": source},
        }
    )
    assert isinstance(found, api.InferenceCluster)
    return found


MANIFESTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    # (source, connection, target without and with a control cluster)
    "Existing": (
        {"source": "Existing", "existing": {"secretRef": {"name": "k"}}},
        {"secret": {"namespace": "modelplane-system", "name": "k", "key": "kubeconfig"}},
        "directory",
        "kubernetes",
    ),
    "Existing with a key": (
        {"source": "Existing", "existing": {"secretRef": {"name": "k", "key": "config"}}},
        {"secret": {"namespace": "modelplane-system", "name": "k", "key": "config"}},
        "directory",
        "kubernetes",
    ),
    # The name is the one that the reference implementation gives the cluster.
    "EKS": (
        {"source": "EKS", "eks": {"region": "us-west-2"}},
        {"eks": {"cluster": "modelplane-system-eks-us-west-eks-03b8e", "region": "us-west-2"}},
        "kubernetes",
        "kubernetes",
    ),
    "GKE": (
        {"source": "GKE", "gke": {"region": "europe-west4", "project": "my-project"}},
        {
            "gke": {
                "project": "my-project",
                "location": "europe-west4",
                "cluster": "modelplane-system-eks-us-west-gke-4c136",
            }
        },
        "kubernetes",
        "kubernetes",
    ),
    "GKE without a project": (
        {"source": "GKE", "gke": {"region": "europe-west4"}},
        {"gke": {"location": "europe-west4", "cluster": "modelplane-system-eks-us-west-gke-4c136"}},
        "kubernetes",
        "kubernetes",
    ),
    "AKS": ({"source": "AKS", "aks": {"location": "westeurope"}}, {}, "directory", "directory"),
    "Nebius": ({"source": "Nebius", "nebius": {}}, {}, "directory", "directory"),
    "Vultr": ({"source": "Vultr", "vultr": {"region": "ewr"}}, {}, "directory", "directory"),
}


@pytest.mark.parametrize(("source", "connection", "alone", "with_control"), MANIFESTS.values(), ids=MANIFESTS)
def test_the_variables_that_a_manifest_gives(
    source: dict[str, Any], connection: dict[str, Any], alone: str, with_control: str
) -> None:
    found = connections.of_manifest(cluster(**source))
    assert found == connection
    assert connections.target_of(found, control=False) == alone
    assert connections.target_of(found, control=True) == with_control


def test_names_in_google_cloud_fit() -> None:
    assert len(gke_name("a-cluster-name-that-is-much-longer-than-the-limit-allows-x")) == 40


@given(
    st.dictionaries(
        st.sampled_from([*connections.CLUSTER_VARIABLES, "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.sampled_from(["kubernetes", "directory", "", "x", "/k"]),
            lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*connections.OPTIONS, "x"]), inner),
        ),
    )
)
def test_any_variables_are_read_or_refused(variables: dict[str, Any]) -> None:
    for read in (connections.cluster_connection, connections.control_connection):
        try:
            found = read("host", variables)
        except connections.ConnectionsError:
            continue
        assert found is None or isinstance(found, dict)


ON_EKS = {"provider": "eks", "cloud_name": "prod", "project": ""}
ON_GKE = {"provider": "gke", "cloud_name": "prod", "project": "my-project"}


@pytest.mark.parametrize(
    ("variables", "known", "is_provisioned"),
    [
        (kubernetes(fleet_connection={"eks": EKS}), ON_EKS, True),
        (kubernetes(fleet_connection={"eks": {**EKS, "cluster": "other"}}), ON_EKS, False),
        (kubernetes(fleet_connection={"eks": EKS}), ON_GKE, False),
        (kubernetes(fleet_connection={"eks": EKS}), {**ON_EKS, "provider": ""}, False),
        (kubernetes(fleet_connection={"eks": EKS}, fleet_provision="provided"), ON_EKS, False),
        (kubernetes(fleet_connection={"eks": EKS}, fleet_cluster="another"), ON_EKS, False),
        (kubernetes(fleet_kubeconfig="/k"), ON_EKS, False),
        (kubernetes(fleet_connection={"gke": GKE}), ON_GKE, True),
        (kubernetes(fleet_connection={"gke": {**GKE, "project": "another"}}), ON_GKE, False),
        (kubernetes(fleet_connection={"gke": {**GKE, "project": "another"}}), {**ON_GKE, "project": ""}, True),
        ({"fleet_target": "directory", "__fleet_cloud_name": "prod"}, ON_GKE, True),
        ({"fleet_target": "directory"}, ON_GKE, False),
    ],
)
def test_a_cluster_is_provisioned_where_it_is_reached_by_the_name_that_the_fleet_gives_it(
    variables: dict[str, Any], known: dict[str, Any], is_provisioned: bool
) -> None:
    assert connections.provisioned("west", variables, {"west": known}) == (known if is_provisioned else {})
