# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects onto a real API server, and off it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from copy import deepcopy

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    PUBLISHED_LABEL,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.tests.unit.kube.places import (
    SYSTEM,
    Object,
    Place,
    actions,
    all_are,
    config,
    drifted,
    job,
    only,
    thing,
    written,
)


def test_create_then_nothing_then_change_then_remove(place: Place) -> None:
    objects = place.objects()
    assert actions(place.apply(objects)) == all_are(place, "created")
    assert place.get(objects[3])["spec"]["replicas"] == 1  # type: ignore[index]

    since = place.plane.audit_position()
    second = place.apply(objects)
    assert (second.changed, actions(second)) == (False, all_are(place, "unchanged"))
    assert not written(place, since)
    assert "get" not in second.requests

    objects[1]["data"] = {"b": "2"}
    third = place.apply(objects)
    assert actions(third) == {**all_are(place, "unchanged"), "ConfigMap/settings": "updated"}
    # A key that is no longer desired goes.
    assert place.get(objects[1])["data"] == {"b": "2"}  # type: ignore[index]

    fourth = place.apply([value for value in objects if value["kind"] not in ("Service", "Deployment")])
    assert actions(fourth)["Service/web"] == actions(fourth)["Deployment/web"] == "deleted"
    assert place.get(objects[2]) is None
    assert not place.apply([value for value in objects if value["kind"] not in ("Service", "Deployment")]).changed

    assert actions(place.apply([])) == {"ConfigMap/settings": "deleted", f"Namespace/{place.namespace}": "deleted"}
    assert place.records() == []


def test_objects_of_a_namespace_that_is_being_deleted_are_made_again(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    place.apply([])
    assert actions(place.apply(objects)) == all_are(place, "created")
    assert all(place.get(value) for value in objects)
    assert not place.apply(objects).changed


def test_a_copy_without_our_label_is_given_it(place: Place) -> None:
    value = config("bare", place.namespace, a="1")
    del value["metadata"]["labels"]
    place.apply([thing("v1", "Namespace", place.namespace), value])
    assert place.get(value)["metadata"]["labels"] == {MANAGED_BY_LABEL: MANAGED_BY}  # type: ignore[index]


def test_check_mode_reports_the_same_and_writes_nothing(place: Place) -> None:
    objects = place.objects()
    assert actions(place.apply(objects, check_mode=True)) == all_are(place, "created")
    assert place.get(objects[0]) is None
    assert place.records() == []
    place.apply(objects)
    records = place.records()
    objects[3]["spec"]["replicas"] = 2
    changed = [*objects[:2], objects[3]]
    reported = place.apply(changed, check_mode=True)
    assert actions(reported) == {**all_are(place, "unchanged"), "Deployment/web": "updated", "Service/web": "deleted"}
    assert place.get(objects[3])["spec"]["replicas"] == 1  # type: ignore[index]
    assert place.get(objects[2]) is not None
    assert place.records() == records
    assert actions(place.apply(changed)) == actions(reported)


def test_an_object_of_another_user_is_left_alone(place: Place) -> None:
    place.plane.create_namespace(place.namespace, {MANAGED_BY_LABEL: MANAGED_BY})
    foreign = {**config("settings", place.namespace, theirs="yes")}
    foreign["metadata"] = {"name": "settings", "namespace": place.namespace}
    place.plane.apply(foreign)
    objects = place.objects()
    for _ in range(2):
        applied = place.apply(objects)
        found = only(applied, "ConfigMap")
        assert (found.action, applied.failed) == ("failed", True)
        assert "does not belong to the fleet" in found.message
        assert "kube-tests" in found.message
        assert place.get(objects[3]) is not None
        assert place.get(foreign)["data"] == {"theirs": "yes"}  # type: ignore[index]
    # Nor is it removed when it is no longer desired.
    assert "ConfigMap/settings" not in actions(place.apply([objects[0]]))
    assert place.get(foreign) is not None


def test_a_certificate_that_is_there_with_the_same_key_is_used_as_it_is(place: Place) -> None:
    place.plane.create_namespace(place.namespace, {MANAGED_BY_LABEL: MANAGED_BY})

    def certificate(kind: str = "kubernetes.io/tls", **data: str) -> Object:
        encoded = {name.replace("_", "."): base64.b64encode(value.encode()).decode() for name, value in data.items()}
        return thing("v1", "Secret", "models-tls", place.namespace, type=kind, data=encoded)

    theirs = certificate(tls_crt="certificate", tls_key="key", ca_crt="ca")
    del theirs["metadata"]["labels"]
    place.plane.apply(theirs)
    namespace = thing("v1", "Namespace", place.namespace)
    for _ in range(2):
        found = only(place.apply([namespace, certificate(tls_crt="certificate", tls_key="key")]), "Secret")
        assert (found.action, found.message) == ("unchanged", "it already exists and is used without changes")
    other = only(place.apply([namespace, certificate(tls_crt="certificate", tls_key="another key")]), "Secret")
    assert other.action == "failed"
    assert "does not belong to the fleet" in other.message
    # Nor does it go with the others.
    place.apply([])
    assert place.get(theirs)


def test_the_gateway_of_the_serving_stack_is_given_up_by_the_stack(place: Place) -> None:
    namespace = thing("v1", "Namespace", place.namespace)
    objects = [namespace, config("inference-gateway", place.namespace), config("others", place.namespace)]
    place.apply(objects, scope="serving-stack.single")
    messages = {found.name: found.message for found in place.apply(objects).results if found.action == "failed"}
    owner = f"it belongs to fleet {place.fleet} (serving-stack.single)"
    assert messages == {
        "inference-gateway": f"{owner}, which gives it up to a gateway in mode Model: run serving_stack first",
        "others": f"{owner}: two fleets have an object of this name",
    }
    place.apply([], scope="serving-stack.single")


def test_a_namespace_of_the_record_that_others_made_gets_the_label_by_which_gateways_take_routes(place: Place) -> None:
    def labelled(fleet: str) -> Object:
        value = thing("v1", "Namespace", SYSTEM)
        value["metadata"]["labels"]["modelplane.ai/namespace"] = fleet
        return value

    there = place.plane.get("v1", "Namespace", SYSTEM)
    assert there
    ours = MANAGED_BY_LABEL in there["metadata"]["labels"]
    change = {"metadata": {"labels": {MANAGED_BY_LABEL: None}}}
    place.plane.objects.patch("v1", "Namespace", SYSTEM, change)
    try:
        for action in ("updated", "unchanged"):
            (found,) = place.apply([labelled("a-system")]).results
            assert found.action == action
        after = place.get(labelled("a-system"))
        assert after
        assert after["metadata"]["labels"]["modelplane.ai/namespace"] == "a-system"
        assert MANAGED_BY_LABEL not in after["metadata"]["labels"]
        place.apply([])
        assert place.get(labelled("a-system")), "it is not ours"
    finally:
        back = {MANAGED_BY_LABEL: MANAGED_BY if ours else None, "modelplane.ai/namespace": None}
        place.plane.objects.patch("v1", "Namespace", SYSTEM, {"metadata": {"labels": back}})


DRIFTS: dict[str, tuple[int, Object, str]] = {
    "a value of ours": (3, {"spec": {"replicas": 4}}, "updated"),
    "a key of ours": (1, {"data": {"a": None}}, "updated"),
    "a key of theirs": (1, {"data": {"z": "9"}}, "unchanged"),
    "a label of theirs": (3, {"metadata": {"labels": {"team": "x"}}}, "unchanged"),
    "a field of theirs": (3, {"spec": {"minReadySeconds": 3}}, "unchanged"),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_drift_of_what_is_ours_is_mended_and_nothing_else_is(place: Place, name: str) -> None:
    index, change, action = DRIFTS[name]
    objects = place.objects()
    place.apply(objects)
    before = place.get(objects[index])
    drifted(place, objects[index], change)
    applied = place.apply(objects)
    found = next(result for result in applied.results if result.key == Key.of(objects[index]))
    assert found.action == action, found.message
    after = place.get(objects[index])
    assert before
    assert after
    for field in ("data", "spec"):
        if field in objects[index] and field in objects[index]:
            desired = objects[index][field]
            assert {key: after[field].get(key) for key in desired}.get("replicas") == desired.get("replicas")
            if field == "data":
                assert desired.items() <= after["data"].items()
    assert not place.apply(objects).changed


def test_a_manager_that_applies_keeps_its_fields_unless_forced(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    theirs = deepcopy(objects[3])
    theirs["spec"] = {**theirs["spec"], "replicas": 7}
    place.client.apply(theirs, manager="argo", force=True)
    applied = place.apply(objects)
    found = only(applied, "Deployment")
    assert found.action == "failed"
    assert "argo owns .spec.replicas" in found.message
    assert place.get(objects[3])["spec"]["replicas"] == 7  # type: ignore[index]
    forced = place.apply(objects, force=True)
    assert only(forced, "Deployment").action == "updated"
    assert place.get(objects[3])["spec"]["replicas"] == 1  # type: ignore[index]


@pytest.mark.parametrize("by_applying", [False, True])
def test_what_others_say_a_namespace_lets_in_stays(place: Place, by_applying: bool) -> None:
    """By an administrator (kubectl label), or by a controller that applies, as OpenShift's."""
    enforce, warn = "pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/warn"
    objects = place.objects()
    namespace = objects[0]
    place.apply(objects)
    if by_applying:
        theirs = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": place.namespace, "labels": {warn: "baseline"}},
        }
        place.client.apply(theirs, manager="label-syncer")
    else:
        drifted(place, namespace, {"metadata": {"labels": {warn: "baseline"}}})
    namespace["metadata"]["labels"] |= {enforce: "baseline", warn: "restricted"}
    assert only(place.apply(objects), "Namespace").action == "updated"
    found = place.get(namespace)["metadata"]["labels"]  # type: ignore[index]
    assert (found[enforce], found[warn]) == ("baseline", "baseline")
    since = place.plane.audit_position()
    assert not place.apply(objects).changed
    assert not written(place, since)

    # What no other manager holds any more is ours again.
    if by_applying:
        del theirs["metadata"]["labels"]
        place.client.apply(theirs, manager="label-syncer")
    else:
        drifted(place, namespace, {"metadata": {"labels": {warn: None}}})
    assert only(place.apply(objects), "Namespace").action == "updated"
    assert place.get(namespace)["metadata"]["labels"][warn] == "restricted"  # type: ignore[index]


def test_what_people_write_to_the_copy_of_a_manifest_is_no_drift(place: Place) -> None:
    objects = place.objects()
    copy = objects[3]
    copy["metadata"] = {**copy["metadata"], "labels": {PUBLISHED_LABEL: "true"}}
    place.apply(objects)
    drifted(place, copy, {"spec": {"replicas": 7}})
    applied = place.apply(objects)
    found = only(applied, "Deployment")
    assert found.action == "failed"
    assert ".spec.replicas" in found.message
    assert "leave that out of the manifest" in found.message
    assert place.get(copy)["spec"]["replicas"] == 7  # type: ignore[index]
    del copy["spec"]["replicas"]
    assert only(place.apply(objects), "Deployment").action != "failed"
    assert place.get(copy)["spec"]["replicas"] == 7  # type: ignore[index]


RECREATED: dict[str, tuple[Callable[[str], Object], Callable[[Object], object]]] = {
    "a job": (lambda namespace: job("fill", namespace, "one"), lambda value: value.update(job("fill", "", "two"))),
    "a claim template": (
        lambda namespace: thing(
            "resource.k8s.io/v1",
            "ResourceClaimTemplate",
            "gpu",
            namespace,
            spec={"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "one"}}]}}},
        ),
        lambda value: value["spec"]["spec"]["devices"]["requests"][0]["exactly"].update(deviceClassName="two"),
    ),
    "a role binding": (
        lambda namespace: thing(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "b",
            namespace,
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
        ),
        lambda value: value["roleRef"].update(name="two"),
    ),
    "a settled config map": (
        lambda namespace: {**config("settled", namespace, a="1"), "immutable": True},
        lambda value: value["data"].update(a="2"),
    ),
}


@pytest.mark.parametrize("name", RECREATED)
def test_what_cannot_be_changed_and_loses_nothing_is_made_again(place: Place, name: str) -> None:
    make, edit = RECREATED[name]
    value = make(place.namespace)
    objects = [thing("v1", "Namespace", place.namespace), value]
    place.apply(objects)
    before = place.get(value)
    namespace = value["metadata"]["namespace"]
    edit(value)
    value["metadata"]["namespace"] = namespace
    checked = only(place.apply(objects, check_mode=True), value["kind"])
    assert checked.action == "recreated", checked.message
    assert only(place.apply(objects), value["kind"]).action == "recreated"
    after = place.get(value)
    assert before
    assert after
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert not place.apply(objects).changed


def test_a_job_that_could_not_be_made_again_is_not_deleted(place: Place) -> None:
    value = job("fill", place.namespace, "one")
    objects = [thing("v1", "Namespace", place.namespace), value]
    place.apply(objects)
    value["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    applied = place.apply(objects)
    assert only(applied, "Job").action == "failed"
    assert place.get(value) is not None


def test_what_the_server_repeats_of_a_pod_is_not_reported(place: Place) -> None:
    value = job("fill", place.namespace, "one")
    value["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "HF", "value": "hunter2-planted"}]
    objects = [thing("v1", "Namespace", place.namespace), value]
    place.apply(objects)
    value["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    found = only(place.apply(objects), "Job")
    assert found.action == "failed"
    assert "spec.template" in found.message
    assert "hunter2" not in found.message


def test_what_runs_is_never_made_again(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    objects[3]["spec"]["selector"] = {"matchLabels": {"app": "web", "more": "x"}}
    objects[3]["spec"]["template"]["metadata"]["labels"]["more"] = "x"
    found = only(place.apply(objects), "Deployment")
    assert found.action == "failed"
    assert f"kubectl delete deployment web -n {place.namespace}" in found.message


def test_an_invalid_object_fails_alone_and_says_why(place: Place) -> None:
    objects = place.objects()
    objects[2]["spec"]["ports"][0]["port"] = 70000
    objects[1]["unknown"] = 1
    applied = place.apply(objects)
    assert actions(applied) == {
        **all_are(place, "created"),
        "Service/web": "failed",
        "ConfigMap/settings": "failed",
    }
    assert "spec.ports[0].port" in only(applied, "Service").message
    assert "unknown" in only(applied, "ConfigMap").message
    assert "east" in only(applied, "Service").message


def test_a_namespace_with_what_others_put_there_is_kept(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": place.namespace}}
    place.plane.apply(secret)
    for _ in range(2):
        applied = place.apply([])
        found = only(applied, "Namespace")
        assert found.action == "skipped"
        assert f"Secret {place.namespace}/pull" in found.message
    assert place.get(secret) is not None
    place.plane.objects.delete("v1", "Secret", "pull", place.namespace)
    assert only(place.apply([]), "Namespace").action == "deleted"


FOREIGN = {
    "Ingress": {
        "apiVersion": "networking.k8s.io/v1",
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
    },
    "ServiceAccount": {"apiVersion": "v1"},
    "Role": {"apiVersion": "rbac.authorization.k8s.io/v1", "rules": []},
    "HorizontalPodAutoscaler": {
        "apiVersion": "autoscaling/v2",
        "spec": {
            "maxReplicas": 2,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
    },
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_namespace_with_a_foreign_object_of_any_kind_is_kept(place: Place, kind: str) -> None:
    place.apply(place.objects())
    foreign: Object = {**FOREIGN[kind], "kind": kind, "metadata": {"name": "theirs", "namespace": place.namespace}}
    place.plane.apply(foreign)
    place.apply([])
    for check_mode in (True, False):
        applied = place.apply([], check_mode=check_mode)
        assert only(applied, "Namespace").action == "skipped"
        (note,) = applied.notes
        assert note == (
            f"Namespace {place.namespace} is kept, although it is no longer desired, because it contains objects that "
            f"the fleet does not own: {kind} {place.namespace}/theirs"
        )
        assert (applied.changed, applied.differs) == (False, False)
    assert place.get(foreign) is not None


def test_a_namespace_with_objects_of_controllers_is_deleted(place: Place) -> None:
    place.apply(place.objects())
    metadata = {"namespace": place.namespace, "annotations": {"helm.sh/hook": "pre-install"}}
    for api_version, kind in (("v1", "ServiceAccount"), ("rbac.authorization.k8s.io/v1", "Role")):
        place.plane.apply({"apiVersion": api_version, "kind": kind, "metadata": {"name": "certgen", **metadata}})
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    place.plane.apply({**lease, "metadata": {"name": "leader", "namespace": place.namespace}})
    assert only(place.apply([]), "Namespace").action == "deleted"


def test_without_prune_all_stays_and_is_not_forgotten(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    assert not place.apply(objects[:2], prune=False).changed
    assert place.get(objects[3]) is not None
    assert actions(place.apply(objects[:2]))["Deployment/web"] == "deleted"


def test_what_is_unknown_now_is_held(place: Place) -> None:
    objects = [thing("v1", "Namespace", place.namespace), config("held", place.namespace, a="1")]
    place.apply(objects)
    held = frozenset({Key.of(objects[1])})
    assert not place.apply([], held=held).changed
    assert place.get(objects[1]) is not None
    assert actions(place.apply([]))["ConfigMap/held"] == "deleted"


def test_two_fleets_want_one_object(place: Place) -> None:
    objects = place.objects()
    place.apply(objects)
    other = Place(place.plane, place.client)
    applied = other.apply(objects)
    assert actions(applied) == {**all_are(place, "failed"), f"Namespace/{place.namespace}": "unchanged"}
    assert f"fleet {place.fleet}" in only(applied, "ConfigMap").message
    # The one that had it first is not disturbed, and the namespace of both is kept when one goes.
    assert not place.apply(objects).failed
    assert f"Namespace/{place.namespace}" not in actions(other.apply([]))
    assert place.get(objects[0]) is not None


def test_what_runs_and_the_role_of_the_gateway_want_goes_with_the_last_of_them(place: Place) -> None:
    objects = place.objects()[:3]
    names = list(actions(place.apply(objects, scope="control")))
    assert actions(place.apply(objects, scope="gateway.control-plane")) == dict.fromkeys(names, "unchanged")
    since = place.plane.audit_position()
    for scope in ("control", "gateway.control-plane"):
        assert not place.apply(objects, scope=scope).changed
    assert not written(place, since)
    assert actions(place.apply([], scope="control")) == {}
    assert actions(place.apply([], scope="gateway.control-plane")) == dict.fromkeys(names, "deleted")


def test_a_namespace_that_is_not_there(place: Place) -> None:
    value = config("settings", place.namespace, a="1")
    found = only(place.apply([value]), "ConfigMap")
    assert found.action == "failed"
    assert f"there is no namespace {place.namespace}" in found.message
    assert only(place.apply([value], check_mode=True), "ConfigMap").action == "failed"
    created = {f"Namespace/{place.namespace}": "created", "ConfigMap/settings": "created"}
    for check_mode in (True, False):
        applied = place.apply([value], check_mode=check_mode, create_namespaces=True)
        assert actions(applied) == created
        # What was done as it should be is no warning.
        assert applied.notes == ()
    # It is the user's from then on.
    assert actions(place.apply([])) == {"ConfigMap/settings": "deleted"}
    assert place.plane.get("v1", "Namespace", place.namespace) is not None


def definition(group: str) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"kind": "Toy", "plural": "toys", "singular": "toy", "listKind": "ToyList"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    return thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"toys.{group}", spec=spec)


def test_a_kind_and_its_objects_in_one_run(place: Place) -> None:
    group = f"{place.fleet}.example.com"
    toy = thing(f"{group}/v1", "Toy", "ball", place.namespace, spec={"colour": "red"})
    objects = [toy, thing("v1", "Namespace", place.namespace), definition(group)]
    assert actions(place.apply(objects, check_mode=True))["Toy/ball"] == "created"
    applied = place.apply(objects)
    assert set(actions(applied).values()) == {"created"}, [found.message for found in applied.results]
    assert place.get(toy) is not None
    assert not place.apply(objects).changed
    # The definition stays unless asked for, as every object of the kind would go with it.
    assert "CustomResourceDefinition" not in {found.kind for found in place.apply([]).results}
    assert place.get(objects[2]) is not None
    users = thing(f"{group}/v1", "Toy", "kite", "default")
    place.plane.apply(users)
    kept = only(place.apply([], definitions=True), "CustomResourceDefinition")
    assert (kept.action, "Toy default/kite" in kept.message) == ("skipped", True), kept.message
    assert place.get(users) is not None
    place.plane.objects.delete(f"{group}/v1", "Toy", "kite", "default")
    for check_mode in (True, False):
        assert only(place.apply([], definitions=True, check_mode=check_mode), "CustomResourceDefinition").action == (
            "deleted"
        )
    assert place.records() == []


def test_a_kind_that_was_removed_is_forgotten(place: Place) -> None:
    group = f"{place.fleet}.example.com"
    toy = thing(f"{group}/v1", "Toy", "ball", place.namespace)
    objects = [thing("v1", "Namespace", place.namespace), definition(group), toy]
    place.apply(objects)
    place.plane.objects.delete("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"toys.{group}")
    place.client.forget_discovery()
    applied = place.apply(objects[:1])
    assert not applied.failed
    assert applied.notes == ()
    assert "Toy" not in place.records()[0]["data"]["objects"]


def test_a_kind_that_is_not_served_fails_alone(place: Place) -> None:
    toy = thing("nowhere.example.com/v1", "Toy", "ball", place.namespace)
    applied = place.apply([*place.objects(), toy])
    found = only(applied, "Toy")
    assert found.action == "failed"
    assert "install the serving stack first" in found.message
    assert actions(applied)["Deployment/web"] == "created"


SECRET_VALUE = base64.b64encode(b"hunter2-planted").decode()


def test_secrets_are_compared_by_value_and_their_value_is_nowhere_else(place: Place) -> None:
    secret = thing("v1", "Secret", "token", place.namespace, type="Opaque", data={"HF_TOKEN": SECRET_VALUE})
    objects = [thing("v1", "Namespace", place.namespace), secret]
    assert only(place.apply(objects), "Secret").action == "created"
    since = place.plane.audit_position()
    assert not place.apply(objects).changed
    assert not written(place, since)
    drifted(place, secret, {"data": {"HF_TOKEN": base64.b64encode(b"other").decode()}})
    assert only(place.apply(objects), "Secret").action == "updated"
    assert place.get(secret)["data"] == {"HF_TOKEN": SECRET_VALUE}  # type: ignore[index]
    [record] = place.records()
    assert SECRET_VALUE not in str(record)
    lines = [line for line in record["data"]["objects"].splitlines() if '"Secret"' in line]
    first = lines[0]
    secret["data"] = {"HF_TOKEN": base64.b64encode(b"third").decode()}
    place.apply(objects)
    assert first in place.records()[0]["data"]["objects"]


def test_who_may_not_read_a_kind_applies_the_others(place: Place) -> None:
    rules = [
        {
            "apiGroups": [""],
            "resources": ["namespaces", "configmaps", "services"],
            "verbs": ["get", "list", "create", "patch", "update", "delete"],
        }
    ]
    kubeconfig = place.plane.user_kubeconfig(f"limited-{place.fleet}", rules=rules)
    with connect(Connection("east", kubeconfig=str(kubeconfig), retries=1), write_cache=False) as limited:
        applied = place.apply(place.objects(), client=limited)
    assert actions(applied) == {**all_are(place, "created"), "Deployment/web": "failed"}
    assert "Grant the permission" in only(applied, "Deployment").message
