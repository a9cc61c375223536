# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The rights of the fleet are those that its work needs: no kind without them, none that nothing is done with."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_security import (
    BASELINE_CAPABILITIES,
    IPC_LOCK,
    SelinuxOptions,
    Sysctl,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import fields_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.readiness import waited_for
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import ENGINES
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.labelled_objects import (
    ON_CONTROL,
    ON_WORKLOAD,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SECRETS_ROLE
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings

ROOT = Path(__file__).parents[3]
RBAC = ROOT / "roles/control_plane/files/rbac"
CRDS = ROOT / "tests/kube/data/crds"
SCHEMAS = ROOT / "tests/data/schemas"
BUILT_IN = {
    "BackendSecurityPolicy": "backendsecuritypolicies",
    "EndpointSlice": "endpointslices",
    "NetworkPolicy": "networkpolicies",
}
"""Plurals that are not the kind in lower case with an s."""

MODEL_GATEWAY = (ROOT / "tests/data/model-gateway.yaml").read_text()
"""A fleet with a gateway in mode Model, of which everything is known that its clusters say."""

POLICY = "ValidatingAdmissionPolicy"

Right = tuple[str, str, str]
"""Group, resource, verb."""
GroupKind = tuple[str, str]

WRITTEN = ("get", "list", "create", "patch", "delete")
READ_ON_WORKLOAD: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): ("get", "list", "watch"),
    ("inference.networking.x-k8s.io", "inferenceobjectives"): ("get", "list", "watch"),
    ("", "events"): ("list",),
    ("", "nodes"): ("list",),
    ("route.openshift.io", "routes"): ("get",),
    ("resource.k8s.io", "deviceclasses"): ("get",),
    ("resource.k8s.io", "resourceslices"): ("list",),
    ("resource.k8s.io", "resourceclaims"): ("list",),
    ("resource.k8s.io", "devicetaintrules"): ("list",),
    ("apps", "daemonsets"): ("list",),
    ("apps", "statefulsets"): ("list",),
    ("batch", "cronjobs"): ("list",),
    ("networking.k8s.io", "ingresses"): ("list",),
    ("apiextensions.k8s.io", "customresourcedefinitions"): ("list",),
}
"""Kinds that are read, and not composed."""
READ_ON_CONTROL: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): ("list",),
    ("", "nodes"): ("list",),
    ("", "events"): ("list", "create"),
    ("", "persistentvolumeclaims"): ("list",),
    ("apps", "daemonsets"): ("list",),
    ("apps", "statefulsets"): ("list",),
    ("batch", "cronjobs"): ("list",),
    ("networking.k8s.io", "ingresses"): ("list",),
    ("batch", "jobs"): ("list",),
    ("leaderworkerset.x-k8s.io", "leaderworkersets"): ("list",),
    ("apiextensions.k8s.io", "customresourcedefinitions"): ("list", "watch", "get", "create", "patch", "delete"),
}


@cache
def manifests(name: str) -> tuple[dict[str, Any], ...]:
    return tuple(yaml.safe_load_all((RBAC / f"{name}.yaml").read_text()))


def rules(file: str, kind: str, name: str) -> list[dict[str, Any]]:
    return next(each["rules"] for each in manifests(file) if (each["kind"], each["metadata"]["name"]) == (kind, name))


def rights(given: Iterable[Mapping[str, Any]]) -> Iterator[Right]:
    for rule in given:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield group, resource, verb


@cache
def plurals() -> dict[GroupKind, str]:
    found = {(kind.GROUP, name): kind.PLURAL for name, kind in api.KINDS.items()}
    for path in CRDS.rglob("*.json"):
        spec = json.loads(path.read_text())["spec"]
        found[spec["group"], spec["names"]["kind"]] = spec["names"]["plural"]
    for path in SCHEMAS.glob("*.json"):
        schema = json.loads(path.read_text())
        found[schema["group"], schema["kind"]] = schema["plural"]
    return found


def plural(group_kind: GroupKind) -> str:
    kind = group_kind[1]
    return plurals().get(group_kind) or BUILT_IN.get(kind) or f"{kind.lower()}s"


def needed(composed: Iterable[GroupKind], read: Mapping[tuple[str, str], tuple[str, ...]]) -> set[Right]:
    """The rights to apply objects of these kinds, wait for them and remove them, and to read others."""
    found = {(group, resource, verb) for (group, resource), verbs in read.items() for verb in verbs}
    for group, kind in composed:
        if (group, kind) != ("", "Secret"):
            verbs = (*WRITTEN, "watch") if waited_for(kind) else WRITTEN
            found |= {(group, plural((group, kind)), verb) for verb in verbs}
    return found


def test_a_workload_cluster_gives_the_rights_that_are_needed_and_no_others() -> None:
    given = list(rights(rules("workload-cluster", "ClusterRole", "modelplane-workload-cluster")))
    bind = ("rbac.authorization.k8s.io", "clusterroles", "bind")
    ask = ("", "services/proxy", "create")
    assert set(given) == {*needed(ON_WORKLOAD, READ_ON_WORKLOAD), bind, ask}
    assert len(given) == len(set(given))


def test_the_control_cluster_gives_the_rights_that_are_needed_and_no_others() -> None:
    given = list(rights(rules("control-plane", "ClusterRole", "modelplane-control-plane")))
    status = {(kind.GROUP, f"{kind.PLURAL}/status", "patch") for kind in api.KINDS.values()}
    assert set(given) == needed(ON_CONTROL, READ_ON_CONTROL) | status
    assert len(given) == len(set(given))


def test_in_the_namespace_of_the_fleet_on_the_control_cluster_are_records_the_lock_kubeconfigs_and_keys() -> None:
    given = list(rights(rules("control-plane", "Role", "modelplane-control-plane")))
    assert set(given) == {
        ("", "configmaps", "update"),
        *(("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")),
        *(("", "secrets", verb) for verb in (*WRITTEN, "update")),
    }
    assert len(given) == len(set(given))


def test_only_definitions_of_the_fleet_may_be_written() -> None:
    given = rules("control-plane", "ClusterRole", "modelplane-control-plane")
    of_definitions = [rule for rule in given if rule["apiGroups"] == ["apiextensions.k8s.io"]]
    reading, writing = sorted(of_definitions, key=lambda rule: "resourceNames" in rule)
    assert reading["verbs"] == ["list", "watch"]
    assert writing["resourceNames"] == sorted(f"{kind.PLURAL}.{kind.GROUP}" for kind in api.KINDS.values())
    assert writing["verbs"] == ["get", "create", "patch", "delete"]


def test_what_has_no_namespace_may_be_written_by_its_name_alone() -> None:
    given = rules("workload-cluster", "ClusterRole", "modelplane-workload-cluster")
    allowed = {
        (group, resource, name)
        for rule in given
        if "create" in rule["verbs"] and rule["resources"] != ["services/proxy"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    values = [value for value in composed()[0] if "namespace" not in value["metadata"] and value["kind"] != "Namespace"]
    names = {value["kind"]: set[str]() for value in values}
    for value in values:
        group = value["apiVersion"].rpartition("/")[0]
        names[value["kind"]].add(value["metadata"]["name"])
        assert (group, plural((group, value["kind"])), value["metadata"]["name"]) in allowed
    assert sorted(names) == ["Bundle", "ClusterIssuer"]
    assert len(allowed) == sum(map(len, names.values()))


def test_one_port_of_one_service_may_be_asked() -> None:
    """That by which the serving stack leads to the rate limit service."""
    given = rules("workload-cluster", "ClusterRole", "modelplane-workload-cluster")
    [names] = [rule["resourceNames"] for rule in given if rule["resources"] == ["services/proxy"]]
    components = yaml.safe_load((ROOT / "roles/serving_stack/defaults/main.yml").read_text())
    [[service]] = [each["objects"] for each in components["serving_stack_components"] if each["key"] == "budget-use"]
    [port] = service["spec"]["ports"]
    assert names == [f"{service['metadata']['name']}:{port['name']}"]
    assert (service["metadata"]["name"], port["name"]) == (constants.RATE_LIMIT_SERVICE, constants.RATE_LIMIT_PORT)
    assert service["metadata"]["namespace"] == constants.ENVOY_NAMESPACE


def test_the_fleet_may_bind_the_role_for_secrets_and_no_other() -> None:
    given = rules("workload-cluster", "ClusterRole", "modelplane-workload-cluster")
    assert [rule["resourceNames"] for rule in given if "bind" in rule["verbs"]] == [[ENGINES, SECRETS_ROLE]]
    assert set(rights(rules("workload-cluster", "ClusterRole", SECRETS_ROLE))) == {
        ("", "secrets", verb) for verb in WRITTEN
    }


def test_what_endpoint_pickers_may_do_the_fleet_may_do() -> None:
    given = set(rights(rules("workload-cluster", "ClusterRole", "modelplane-workload-cluster")))
    roles = [value for value in composed()[0] if value["kind"] == "Role"]
    assert roles
    assert {right for role in roles for right in rights(role["rules"])} <= given


@pytest.mark.parametrize("file", ["control-plane", "workload-cluster"])
def test_nothing_is_given_by_wildcard(file: str) -> None:
    for value in manifests(file):
        for right in rights(value.get("rules") or ()):
            assert not [part for part in right if "*" in part], right
            assert right[2] not in ("escalate", "impersonate", "deletecollection")


@pytest.mark.parametrize("file", ["control-plane", "workload-cluster"])
def test_secrets_of_all_namespaces_are_nobodys(file: str) -> None:
    bound = {value["roleRef"]["name"] for value in manifests(file) if value["kind"] == "ClusterRoleBinding"}
    for value in manifests(file):
        if value["kind"] == "ClusterRole" and value["metadata"]["name"] in bound:
            assert "secrets" not in {resource for _, resource, _ in rights(value["rules"])}


@pytest.mark.parametrize("file", ["control-plane", "workload-cluster"])
def test_writing_is_for_objects_with_our_label_alone(file: str) -> None:
    policy = next(value for value in manifests(file) if value["kind"] == "ValidatingAdmissionPolicy")
    first = policy["spec"]["validations"][0]["expression"]
    assert first == f"variables.labels[?'{MANAGED_BY_LABEL}'].orValue('') == '{MANAGED_BY}'"
    binding = next(value for value in manifests(file) if value["kind"] == "ValidatingAdmissionPolicyBinding")
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_both_policies_of_a_workload_cluster_are_for_the_fleet_alone() -> None:
    policies = [each["spec"] for each in manifests("workload-cluster") if each["kind"] == POLICY]
    owner, contents = policies
    assert owner["matchConditions"] == contents["matchConditions"]
    bound = [each["spec"] for each in manifests("workload-cluster") if each["kind"] == f"{POLICY}Binding"]
    assert [(each["policyName"], each["validationActions"]) for each in bound] == [
        ("modelplane-workload-cluster", ["Deny"]),
        ("modelplane-workload-cluster-contents", ["Deny"]),
    ]


def choices(model: Any, field: str) -> list[str]:
    pattern = fields_of(model)[field].shape.pattern
    return pattern.removeprefix("^(").removesuffix(")$").replace("[.]", ".").split("|")


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("capabilities", [*BASELINE_CAPABILITIES, IPC_LOCK]),
        ("seLinuxOptions", ["level", "type", *choices(SelinuxOptions, "type")]),
        ("sysctls", choices(Sysctl, "name")),
    ],
)
def test_pods_may_have_what_templates_may_have(field: str, values: list[str]) -> None:
    contents = manifests("workload-cluster")[-2]["spec"]["validations"]
    [expression] = [each["expression"] for each in contents if field in each["expression"]]
    assert set(re.findall(r"'([\w.]+)'", expression)) == set(values)


@cache
def composed() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All that is built of the documentation's examples and the test fleet: for workload clusters, for the control
    cluster."""
    fleets = [
        block
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        if "apiVersion: modelplane.ai/" in block or "apiVersion: infrastructure.modelplane.ai/" in block
    ]
    fleets.append(MODEL_GATEWAY)
    workload, control = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(fleets):
            source, target = Path(folder, f"{number}.yaml"), Path(folder, str(number))
            source.write_text(text)
            build(Settings((str(source),), folder=str(target), allow_empty=True))
            workload += _read(target / "clusters")
            control += _read(target / "control")
    return workload, control


def _read(folder: Path) -> list[dict[str, Any]]:
    return [value for path in sorted(folder.rglob("*.yaml")) for value in yaml.safe_load_all(path.read_text())]


def kinds(values: Iterable[Mapping[str, Any]]) -> set[GroupKind]:
    return {(value["apiVersion"].rpartition("/")[0], value["kind"]) for value in values}


def test_kinds_on_workload_clusters_are_those_that_are_composed() -> None:
    # Secrets are copied while a build is applied.
    assert kinds(composed()[0]) | {("", "Secret")} == set(ON_WORKLOAD)


def test_kinds_on_the_control_cluster_are_those_that_are_composed() -> None:
    ours = {(kind.GROUP, name) for name, kind in api.KINDS.items()}
    # A grant comes with a service of several parts, of which no example is.
    ours.add(("gateway.networking.k8s.io", "ReferenceGrant"))
    assert kinds(composed()[1]) | ours == set(ON_CONTROL)


def test_objects_are_composed_in_the_versions_that_are_read() -> None:
    for values, searched in zip(composed(), (ON_WORKLOAD, ON_CONTROL), strict=True):
        for value in values:
            group = value["apiVersion"].rpartition("/")[0]
            assert searched[group, value["kind"]] == value["apiVersion"]
