# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Routes on a real API server: what has to be there before them, and what stays until gateways follow them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.conditions import Unreferenced
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.steps import Wait
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import apply as applying
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.conditions import Conditions
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import RecordStore
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SecretAccess
from ansible_collections.modelplane.fleet.tests.unit.kube.places import (
    SYSTEM,
    Object,
    Place,
    actions,
    config,
    only,
    service,
    thing,
)
from ansible_collections.modelplane.fleet.tests.unit.kube.routing import (
    GATEWAY,
    WEB,
    ai_route,
    following,
    leads_to,
    limited,
    limits,
    report,
    route,
    write,
)


def policies(place: Place) -> Object:
    """Definition of a kind whose objects need a `spec.mode`."""
    targets = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {"type": "object", "required": ["mode"], "properties": {"mode": {"type": "string"}, "targetRefs": targets}}
    schema = {"type": "object", "properties": {"spec": spec}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"kind": "Policy", "plural": "policies", "singular": "policy", "listKind": "PolicyList"}
    group = f"{place.fleet}.example.com"
    content = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    return thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"policies.{group}", spec=content)


def policy(place: Place, target: Object, namespace: str, **spec: Any) -> Object:
    return thing(f"{place.fleet}.example.com/v1", "Policy", "keys", namespace, spec={"targetRefs": [target], **spec})


@pytest.mark.parametrize("target", [GATEWAY, WEB], ids=["gateway", "route"])
def test_a_route_is_not_open_while_what_guards_it_fails(routed: Place, target: Object) -> None:
    place = routed
    namespace = SYSTEM if target is GATEWAY else place.namespace
    objects = [*place.objects(), policies(place)]
    wrong, right = policy(place, target, namespace), policy(place, target, namespace, mode="keys")
    for check_mode in (True, False):
        applied = place.apply([*objects, wrong, route(place)], check_mode=check_mode)
        if not check_mode:
            assert (only(applied, "Policy").action, only(applied, "HTTPRoute").action) == ("failed", "failed")
            guard = f"Policy {namespace}/keys"
            assert only(applied, "HTTPRoute").message == f"not applied because its policy failed: {guard}"
        assert place.get(route(place)) is None
    assert not place.apply([*objects, right, route(place)]).failed
    # It is there as it was, and still guards the route.
    again = place.apply([*objects, wrong, route(place, name="second")])
    assert (only(again, "Policy").action, only(again, "HTTPRoute").action) == ("failed", "updated")
    assert not place.apply([]).failed


def test_a_route_that_a_failed_policy_does_not_guard_is_applied(routed: Place) -> None:
    place = routed
    other = policy(place, {**WEB, "name": "other"}, place.namespace)
    applied = place.apply([*place.objects(), policies(place), other, route(place)])
    assert (only(applied, "Policy").action, only(applied, "HTTPRoute").action) == ("failed", "created")


@pytest.mark.parametrize("target", [GATEWAY, WEB], ids=["gateway", "route"])
def test_a_route_is_not_made_where_a_policy_of_others_may_open_it(ai_routed: Place, target: Object) -> None:
    place = ai_routed
    namespace = SYSTEM if target is GATEWAY else place.namespace
    made = ai_route(place, "web", parentRefs=[{**GATEWAY, "namespace": SYSTEM}])
    objects = [*place.objects(), made]
    spec = {"targetRefs": [target], "authorization": {"defaultAction": "Allow"}}
    theirs = thing("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", "theirs", namespace, spec=spec)
    del theirs["metadata"]["labels"]
    assert not place.apply(objects[:-1]).failed
    place.plane.apply([theirs])
    for check_mode in (True, False):
        refused = only(place.apply(objects, check_mode=check_mode), "AIGatewayRoute")
        assert (refused.action, place.get(made)) == ("failed", None)
        assert refused.message.startswith(f"it is not applied: SecurityPolicy {namespace}/theirs, which is not of the")
        assert refused.message.endswith(": remove it")
    place.plane.objects.delete("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", "theirs", namespace)
    assert only(place.apply(objects), "AIGatewayRoute").action == "created"
    # What is there already is in use, and changes.
    place.plane.apply([theirs])
    changed = ai_route(place, "next", parentRefs=made["spec"]["parentRefs"])
    assert only(place.apply([*place.objects(), changed]), "AIGatewayRoute").action == "updated"
    place.plane.objects.delete("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", "theirs", namespace)


@pytest.mark.parametrize(("owner", "action"), [("web", "updated"), ("other", "failed"), ("", "failed")])
def test_objects_that_the_ai_gateway_created_for_a_route_of_the_fleet_are_taken_over(
    ai_routed: Place, owner: str, action: str
) -> None:
    """As its filters of earlier versions, which the fleet did not write."""
    place = ai_routed
    objects = [*place.objects(), ai_route(place, "web")]
    assert not place.apply(objects).failed
    ours = thing("v1", "ConfigMap", f"filter-of-{owner or 'none'}", place.namespace, data={"key": "ours"})
    theirs = ai_route(place, "web", name="other")
    del theirs["metadata"]["labels"]
    place.plane.apply([theirs])
    uid = place.get(theirs if owner == "other" else objects[-1])["metadata"]["uid"]
    reference = {"apiVersion": "aigateway.envoyproxy.io/v1beta1", "kind": "AIGatewayRoute", "name": owner, "uid": uid}
    metadata = {"name": ours["metadata"]["name"], "namespace": place.namespace}
    references = {"ownerReferences": [reference]} if owner else {}
    place.plane.apply([{**ours, "metadata": {**metadata, **references}, "data": {"other": "theirs"}}])
    applied = [each for each in place.apply([*objects, ours]).results if each.key.name == metadata["name"]]
    assert [each.action for each in applied] == [action]
    assert (place.get(ours)["data"].get("key") == "ours") == (action == "updated")


def test_what_a_route_leads_to_stays_while_the_route_cannot_be_changed(routed: Place) -> None:
    place = routed
    objects = [*place.objects(), route(place)]
    assert not place.apply(objects).failed
    broken = [objects[0], objects[1], route(place, unknown=1)]
    for _ in range(2):
        applied = place.apply(broken)
        assert actions(applied) == {
            f"Namespace/{place.namespace}": "unchanged",
            "ConfigMap/settings": "unchanged",
            "HTTPRoute/web": "failed",
            "Service/web": "skipped",
            "Deployment/web": "skipped",
        }
        assert place.get(objects[2]) is not None
    assert actions(place.apply(objects[:2]))["Service/web"] == "deleted"


def test_a_backend_is_deleted_once_the_gateway_follows_the_route(routed: Place) -> None:
    place = routed
    namespace, next_one = thing("v1", "Namespace", place.namespace), service("next", place.namespace)
    web = service("web", place.namespace)
    place.apply([namespace, web, route(place)])
    report(place)

    def follow() -> None:
        assert place.get(web) is not None
        report(place)

    progress, waited = following(follow)
    applied = place.apply([namespace, next_one, route(place, "next")], progress=progress)
    assert waited[:2] == ["gateways to program the routes in 1 namespace", "asked"]
    assert (actions(applied)["Service/web"], place.get(web)) == ("deleted", None)


def test_a_gateway_that_does_not_follow_is_waited_for_once(ai_routed: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ai_routed
    namespace, web = thing("v1", "Namespace", place.namespace), service("web", place.namespace)
    behind = ai_route(place, "web", parentRefs=[{"name": "cluster-gateway", "namespace": SYSTEM}])
    place.apply([namespace, web, behind, route(place)])
    report(place)
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    progress, waited = following(lambda: None)
    applied = place.apply([namespace, service("next", place.namespace), route(place, "next")], progress=progress)
    assert waited == ["gateways to program the routes in 1 namespace"]
    assert (actions(applied)["AIGatewayRoute/web"], actions(applied)["Service/web"]) == ("skipped", "skipped")


def test_a_route_changes_back_once_the_ai_gateway_follows_its_change(
    ai_routed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it may write the change after it was taken back, and its backends are gone."""
    place = ai_routed
    namespace, settings = thing("v1", "Namespace", place.namespace), config("settings", place.namespace)

    for to in ("before", "between"):
        place.apply([namespace, settings, ai_route(place, to)])
    write(place, "before")
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    found = place.apply([namespace, ai_route(place, "before")])
    kept = only(found, "ConfigMap")
    assert (kept.action, kept.message) == (
        "skipped",
        "kept until the routes and policies in its namespace are applied",
    )
    place.apply([namespace, settings, ai_route(place, "between")])
    monkeypatch.undo()

    followed = []

    def follow() -> None:
        followed.append(leads_to(place))
        write(place, *followed[-1])

    progress, waited = following(follow)
    applied = place.apply([namespace, ai_route(place, "before")], progress=progress)
    assert [followed[0], followed[-1]] == [["between"], ["before"]]
    assert waited[:2] == ["gateways to program the routes in 1 namespace", "asked"]
    assert actions(applied)["ConfigMap/settings"] == "deleted"


def test_a_backend_stays_for_the_next_run_where_the_gateway_does_not_follow(
    routed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = routed
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    namespace, next_one = thing("v1", "Namespace", place.namespace), service("next", place.namespace)
    place.apply([namespace, service("web", place.namespace), route(place)])
    report(place)
    desired = [namespace, next_one, route(place, "next")]
    for _ in range(2):
        results = place.apply(desired).results
        kept = next(found for found in results if (found.kind, found.name) == ("Service", "web"))
        assert (kept.action, kept.message) == (
            "skipped",
            "kept until gateways have programmed the routes in its namespace",
        )
    report(place)
    assert actions(place.apply(desired))["Service/web"] == "deleted"


def test_routes_that_no_controller_knows_are_not_waited_for(routed: Place) -> None:
    place = routed
    progress, waited = following(lambda: None)
    namespace = thing("v1", "Namespace", place.namespace)
    place.apply([namespace, service("web", place.namespace), route(place)])
    applied = place.apply([namespace, service("next", place.namespace), route(place, "next")], progress=progress)
    assert (actions(applied)["Service/web"], waited) == ("deleted", [])


def waits_for(
    place: Place, gone: Object, routes: list[Object], removed: list[str], seconds: float, progress: Progress = unseen
) -> bool:
    """Wait for gateways, and return whether they have not programmed the routes, so that an object must be kept."""
    condition = Unreferenced(
        place.namespace,
        targets=frozenset({(gone["kind"], gone["metadata"]["name"])}),
        routes=frozenset(Key.of(each).name for each in routes),
        removed=frozenset(removed),
        changed=tuple(routes),
    )
    secrets = SecretAccess(place.client, check_mode=False)
    conditions = Conditions(place.client, RecordStore(place.client, place.fleet, "east"), secrets, seconds, progress)
    return bool(conditions.wait([Wait(id="wait", condition=condition)], {}))


def test_routes_that_the_ai_gateway_writes_are_waited_for(routed: Place) -> None:
    place = routed
    place.apply([thing("v1", "Namespace", place.namespace), config("settings", place.namespace), route(place)])
    routes = [ai_route(place, "next")]
    gone = service("web", place.namespace)
    progress, waited = following(lambda: write(place, "next"))
    assert not waits_for(place, gone, routes, [], 60, progress)
    assert waited[-1] == "asked"
    assert not waits_for(place, gone, routes, [], 0)
    after = thing("gateway.envoyproxy.io/v1alpha1", "Backend", "next", place.namespace)
    assert waits_for(place, after, routes, [], 0)


def test_what_guards_a_removed_route_goes_after_it(routed: Place) -> None:
    """The AI gateway's HTTPRoute goes with the AIGatewayRoute, some time after it."""
    place = routed
    place.plane.objects.apply(thing("v1", "Namespace", place.namespace))
    place.plane.objects.apply(route(place))
    gone = thing("gateway.envoyproxy.io/v1alpha1", "SecurityPolicy", "web", place.namespace)
    collected: list[bool] = []

    def collect() -> None:
        place.plane.objects.delete("gateway.networking.k8s.io/v1", "HTTPRoute", "web", place.namespace)
        collected.append(True)

    progress, waited = following(collect)
    assert not waits_for(place, gone, [], ["web"], 60, progress)
    assert (collected, waited[-1]) == ([True], "asked")


def test_a_removed_route_that_stays_keeps_nothing(routed: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its backends are deleted with what guards it, so it leads nowhere."""
    place = routed
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    held = {**route(place), "metadata": {**route(place)["metadata"], "finalizers": ["test.modelplane.ai/held"]}}
    guard = policy(place, WEB, place.namespace, mode="keys")
    place.apply([thing("v1", "Namespace", place.namespace), policies(place), guard, held])
    found = actions(place.apply([]))
    assert (found["HTTPRoute/web"], found["Policy/keys"]) == ("deleted", "deleted")
    place.plane.objects.patch(
        held["apiVersion"], "HTTPRoute", "web", {"metadata": {"finalizers": None}}, place.namespace
    )


def test_a_route_that_is_held_by_its_labels_keeps_its_namespace(ai_routed: Place) -> None:
    place = ai_routed
    namespace, held = thing("v1", "Namespace", place.namespace), ai_route(place, "web")
    held["metadata"]["labels"]["modelplane.ai/gateway"] = "moved"
    assert not place.apply([namespace, config("settings", place.namespace), held]).failed
    labels = frozenset({(("modelplane.ai/gateway", "moved"),)})
    for desired in ([thing("v1", "Namespace", SYSTEM)], []):
        applied = place.apply(desired, held_labels=labels)
        assert not [found for found in applied.results if found.kind == "Namespace" and found.action == "deleted"]
        assert place.get(held) is not None
        for name in (SYSTEM, place.namespace):
            there = place.plane.get("v1", "Namespace", name)
            assert there is not None
            assert "deletionTimestamp" not in there["metadata"]
    assert actions(place.apply([])) == {"AIGatewayRoute/web": "deleted", f"Namespace/{place.namespace}": "deleted"}


def test_a_namespace_with_a_route_of_another_owner_stays(ai_routed: Place) -> None:
    place = ai_routed
    namespace = thing("v1", "Namespace", place.namespace)
    place.apply([namespace])
    other = ai_route(place, "web")
    del other["metadata"]["labels"]
    place.plane.objects.apply(other)
    kept = only(place.apply([]), "Namespace")
    assert kept.action == "skipped"
    assert f"AIGatewayRoute {place.namespace}/web" in kept.message
    place.plane.objects.delete(other["apiVersion"], "AIGatewayRoute", "web", place.namespace)


def guarded(place: Place, *finalizers: str) -> list[Object]:
    """Objects with a route, and policies on it and on its Gateway."""
    web = route(place)
    web["metadata"]["finalizers"] = list(finalizers)
    on_gateway = policy(place, GATEWAY, SYSTEM, mode="keys")
    on_route = policy(place, WEB, place.namespace, mode="keys")
    return [*place.objects(), policies(place), on_route, on_gateway, web]


def test_what_guards_a_removed_route_goes_after_what_it_leads_to(
    routed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A route can be there for longer than its gateway is waited for."""
    place = routed
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    assert not place.apply(guarded(place, "test.modelplane.ai/held")).failed
    check = place.apply([], check_mode=True)
    applied = place.apply([])
    assert actions(check) == actions(applied)
    deleted = [found.kind for found in applied.results if found.action == "deleted" and found.name != SYSTEM]
    assert deleted == ["HTTPRoute", "Deployment", "Service", "ConfigMap", "Policy", "Policy", "Namespace"]
    route_of(place, finalizers=None)


def route_of(place: Place, **metadata: Any) -> None:
    """Write metadata of the route."""
    place.plane.objects.patch(
        "gateway.networking.k8s.io/v1", "HTTPRoute", "web", {"metadata": metadata}, place.namespace
    )


@contextlib.contextmanager
def nothing_deletes(place: Place, resource: str) -> Iterator[None]:
    """The API server refuses to delete objects of a kind in the namespace."""
    name = f"stays-{place.namespace}"
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": [resource]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"request.namespace != '{place.namespace}'", "message": "it stays"}],
    }
    api, kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
    binding = {"policyName": name, "validationActions": ["Deny"]}
    place.plane.objects.apply(thing(api, kind, name, spec=spec))
    place.plane.objects.apply(thing(api, f"{kind}Binding", name, spec=binding))
    try:
        yield
    finally:
        place.plane.objects.delete(api, f"{kind}Binding", name)
        place.plane.objects.delete(api, kind, name)


@pytest.mark.parametrize("resource", ["httproutes", "services"])
def test_what_guards_a_route_stays_while_the_route_or_what_it_leads_to_cannot_be_deleted(
    routed: Place, resource: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = routed
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    assert not place.apply(guarded(place)).failed
    kind = {"httproutes": "HTTPRoute", "services": "Service"}[resource]
    with nothing_deletes(place, resource):
        place.plane.wait_for(
            "deletions are refused", lambda: only(place.apply([], check_mode=True), kind).action == "failed"
        )
        applied = place.apply([])
    assert only(applied, kind).action == "failed"
    kept = [found for found in applied.results if found.kind == "Policy"]
    message = "kept until the routes that use policies in its namespace are deleted"
    assert [(found.action, found.message) for found in kept] == [("skipped", message)] * 2
    assert actions(applied)[f"Namespace/{place.namespace}"] == "skipped"

    def gone() -> bool:
        return set(actions(place.apply([])).values()) <= {"deleted"}

    place.plane.wait_for("all is deleted", gone)


def test_a_limit_counts_until_the_gateway_follows_the_route_that_is_counted_elsewhere(
    ai_routed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ai_routed
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    namespace = thing("v1", "Namespace", place.namespace)
    assert not place.apply([namespace, limits(place, "Day", "Hour"), ai_route(place, "direct")]).failed
    write(place, "direct")
    wrong = ai_route(place, "detour")
    wrong["metadata"]["annotations"] = {"no key": ""}
    until = {
        "failed": (wrong, "the routes and policies in its namespace are applied"),
        "updated": (ai_route(place, "detour"), "the routes and policies in its namespace are applied"),
        # Its new backend waits for the gateway.
        "skipped": (ai_route(place, "detour"), "the routes and policies in its namespace are applied"),
    }
    for action, (changed, what) in until.items():
        applied = place.apply([namespace, limits(place, "Hour", "Minute", requests=6), changed])
        assert only(applied, "AIGatewayRoute").action == action
        kept = only(applied, "BackendTrafficPolicy")
        assert kept.action == ("updated" if action == "failed" else "skipped")
        assert kept.message == f"its previous limits apply until {what}"
        # What is new counts at once.
        assert limited(place) == ["5 per Day", "6 per Hour", "6 per Minute"]
    desired = [namespace, limits(place, "Hour", "Minute", requests=6), ai_route(place, "detour")]
    changes = []
    for _ in range(3):
        # The gateway follows one version of the route after each run.
        write(place, *leads_to(place))
        changes.append(actions(place.apply(desired))["BackendTrafficPolicy/web"])
    assert changes == ["skipped", "skipped", "updated"]
    assert limited(place) == ["6 per Hour", "6 per Minute"]
    assert actions(place.apply(desired))["BackendTrafficPolicy/web"] == "unchanged"
    assert actions(place.apply([namespace, limits(place), desired[2]]))["BackendTrafficPolicy/web"] == "updated"
    assert limited(place) == []


def test_a_limit_counts_while_the_policy_that_counts_it_from_now_on_fails(ai_routed: Place) -> None:
    place = ai_routed
    namespace, there = thing("v1", "Namespace", place.namespace), ai_route(place, "web")
    objects = [namespace, policies(place), there]
    assert not place.apply([*objects, limits(place, "Day")]).failed
    behind = policy(place, {**WEB, "name": "behind"}, place.namespace)
    for kept in ([limits(place)], []):
        applied = place.apply([*objects, behind, *kept])
        assert only(applied, "Policy").action == "failed"
        assert only(applied, "BackendTrafficPolicy").action == "skipped"
        assert limited(place) == ["5 per Day"]
    assert actions(place.apply(objects))["BackendTrafficPolicy/web"] == "deleted"


def test_a_route_does_not_change_before_what_it_is_counted_by(ai_routed: Place) -> None:
    place = ai_routed
    namespace = thing("v1", "Namespace", place.namespace)
    assert not place.apply([namespace, limits(place), ai_route(place, "detour")]).failed
    wrong = limits(place, "Day")
    wrong["metadata"]["annotations"] = {"no key": ""}
    applied = place.apply([namespace, wrong, ai_route(place, "direct")])
    assert (only(applied, "BackendTrafficPolicy").action, only(applied, "AIGatewayRoute").action) == (
        "failed",
        "failed",
    )
    assert leads_to(place) == ["detour"]
    # What was counted before does not keep it.
    wrong = limits(place)
    wrong["metadata"]["annotations"] = {"no key": ""}
    assert only(place.apply([namespace, wrong, ai_route(place, "direct")]), "AIGatewayRoute").action == "updated"
