# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Routes to the cluster gateway on a real API server, while what is behind it comes, changes, and goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.backends import detour_name
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import apply as applying
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied
from ansible_collections.modelplane.fleet.tests.unit.kube.places import Place, actions, config, service, thing
from ansible_collections.modelplane.fleet.tests.unit.kube.routing import (
    BEHIND,
    ai_route,
    following,
    leads_to,
    limited,
    limits,
    report,
    route,
    way,
    write,
)

WAITED = "gateways to program the routes in 1 namespace"
NOT_ACCEPTED = (
    "not applied because the cluster gateway has not accepted its overflow route. Check the conditions "
    "of the HTTPRoute of AIGatewayRoute {}/behind, and run again"
)


def namespace(place: Place) -> dict[str, object]:
    return thing("v1", "Namespace", place.namespace)


def web(place: Place, *to: str) -> dict[str, object]:
    """Return the route of callers, which leads to these by detours."""
    return ai_route(place, *map(detour_name, to))


def messages(applied: Applied) -> dict[str, tuple[str, str]]:
    return {found.name: (found.action, found.message) for found in applied.results if found.kind == "AIGatewayRoute"}


def accept(place: Place, *names: str) -> None:
    """Write the HTTPRoutes of routes behind the cluster gateway, and accept them, as controllers do."""
    for name in names or ("behind",):
        write(place, *leads_to(place, name), name=name, parentRefs=BEHIND)
        report(place, name)


def controllers(place: Place, seen: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Controllers that work when they are waited for, after `seen`."""

    def work() -> None:
        seen()
        accept(place)
        write(place, *leads_to(place))

    return work


def test_a_route_leads_to_the_cluster_gateway_once_that_accepts_the_detour(
    ai_routed: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else requests get 503 there, and for a while the gateway sends all to the next priority."""
    place = ai_routed
    place.apply([namespace(place), limits(place, "Day"), ai_route(place, "web")])
    write(place, "web")
    desired = [namespace(place), limits(place), way(place, "web"), web(place, "web")]
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    assert actions(place.apply(desired, check_mode=True))["AIGatewayRoute/web"] == "updated"
    for __ in range(2):
        applied = place.apply(desired)
        assert messages(applied)["web"] == ("failed", NOT_ACCEPTED.format(place.namespace))
        assert (leads_to(place), limited(place)) == (["web"], ["5 per Day"])
    monkeypatch.undo()
    progress, waited = following(controllers(place))
    applied = place.apply(desired, progress=progress)
    assert waited.count(WAITED) >= 2
    assert (actions(applied)["AIGatewayRoute/web"], leads_to(place)) == ("updated", [detour_name("web")])
    assert limited(place) == []
    assert set(actions(place.apply(desired)).values()) == {"unchanged"}


def test_a_detour_that_failed_is_not_waited_for(ai_routed: Place) -> None:
    place = ai_routed
    place.apply([namespace(place), ai_route(place, "web")])
    others = way(place, "web")
    del others["metadata"]["labels"]
    place.plane.objects.apply(others)
    progress, waited = following(lambda: None)
    found = messages(place.apply([namespace(place), way(place, "web"), web(place, "web")], progress=progress))
    message = "not applied because its overflow route failed: "
    assert found["web"] == ("failed", f"{message}AIGatewayRoute {place.namespace}/behind")
    assert waited == []
    place.plane.objects.delete(others["apiVersion"], others["kind"], "behind", place.namespace)


def test_a_detour_that_is_not_accepted_keeps_no_other_route(ai_routed: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ai_routed
    never = [way(place, "never", name="behind-never"), ai_route(place, detour_name("never"), name="never")]
    place.apply([namespace(place), *never, way(place, "web"), ai_route(place, "web"), config("old", place.namespace)])
    accept(place)
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    applied = place.apply(
        [namespace(place), *never, way(place, "web"), web(place, "web"), config("old", place.namespace)]
    )
    assert actions(applied)["AIGatewayRoute/web"] == "updated"
    # Nor does a route that the AI gateway has not written for longer than this run.
    assert (
        actions(place.apply([namespace(place), *never, way(place, "web"), web(place, "web")]))["ConfigMap/old"]
        == "deleted"
    )


def test_the_detours_of_all_namespaces_are_waited_for_together(ai_routed: Place) -> None:
    place = ai_routed
    names = [f"{place.namespace}-{number}" for number in range(3)]

    def of(name: str, *routes: dict[str, object]) -> list[dict[str, object]]:
        placed = [{**each, "metadata": {**each["metadata"], "namespace": name}} for each in routes]  # type: ignore[dict-item]
        return [thing("v1", "Namespace", name), *placed]

    place.apply([each for name in names for each in of(name, ai_route(place, "web"))])

    def work() -> None:
        own = place.namespace
        for place.namespace in names:
            accept(place)
        place.namespace = own

    progress, waited = following(work)
    applied = place.apply(
        [each for name in names for each in of(name, way(place, "web"), web(place, "web"))], progress=progress
    )
    assert not applied.failed
    # Each route then changes its requests after the previous one.
    waits = [each for each in waited if each != "asked"]
    assert waits[:2] == [
        "gateways to program the routes in 3 namespaces",
        "processors to read the routes in 3 namespaces",
    ]
    assert waits.count("processors to read the routes in 3 namespaces") == 1
    place.apply([])


def ways(place: Place, *endpoints: str) -> list[dict[str, object]]:
    return [way(place, each, name=f"behind-{each}") for each in endpoints]


def test_a_detour_stays_until_no_route_leads_there(ai_routed: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Overflow routes to other endpoints are unchanged, so that no request is rejected with 503."""
    place = ai_routed
    place.apply([namespace(place), *ways(place, "old", "both"), web(place, "old", "both")])
    accept(place, "behind-old", "behind-both")
    write(place, *leads_to(place))
    desired = [namespace(place), *ways(place, "both", "new"), web(place, "both", "new")]
    monkeypatch.setattr(applying, "FOLLOW_SECONDS", 0.0)
    found = messages(place.apply(desired))
    assert found["web"] == ("failed", NOT_ACCEPTED.format(place.namespace).replace("/behind", "/behind-new"))
    until = "kept until the routes and policies in its namespace are applied"
    assert (found["behind-old"], found["behind-both"][0]) == (("skipped", until), "unchanged")
    monkeypatch.undo()
    steps = []

    def work() -> None:
        steps.append((place.get(*ways(place, "old")) is not None, leads_to(place)))
        accept(place, "behind-new")
        write(place, *leads_to(place))

    progress, __ = following(work)
    found = messages(place.apply(desired, progress=progress))
    before, after = ([detour_name(name) for name in names] for names in (("old", "both"), ("both", "new")))
    assert [steps[0], steps[-1]] == [(True, before), (True, after)]
    assert all(exists for exists, __ in steps)
    assert {name: action for name, (action, __) in found.items()} == {
        "behind-both": "unchanged",
        "behind-new": "unchanged",
        "behind-old": "deleted",
        "web": "updated",
    }
    assert set(actions(place.apply(desired)).values()) == {"unchanged"}
    for name in ("old", "both", "new"):
        place.plane.objects.delete("gateway.networking.k8s.io/v1", "HTTPRoute", f"behind-{name}", place.namespace)


def test_a_policy_goes_once_the_ai_gateway_follows_the_route_that_it_guarded(ai_routed: Place) -> None:
    """Else requests are in no budget until then."""
    place = ai_routed
    place.apply([namespace(place), limits(place, "Day"), ai_route(place, "direct")])
    write(place, "direct")

    def follow() -> None:
        assert limited(place) == ["5 per Day"]
        write(place, *leads_to(place))

    progress, waited = following(follow)
    applied = place.apply([namespace(place), ai_route(place, "next")], progress=progress)
    assert waited[:2] == [WAITED, "asked"]
    assert actions(applied)["BackendTrafficPolicy/web"] == "deleted"


def test_a_detour_goes_once_no_route_leads_there(ai_routed: Place) -> None:
    """Its HTTPRoute and the filters of that go in any order, so that it would answer 500 meanwhile."""
    place = ai_routed
    behind = way(place, "web", name="web")
    place.apply([namespace(place), service("web", place.namespace), behind, route(place)])
    report(place)

    def follow() -> None:
        assert place.get(behind) is not None
        report(place)

    progress, waited = following(follow)
    applied = place.apply([namespace(place), service("next", place.namespace), route(place, "next")], progress=progress)
    assert waited[:2] == [WAITED, "asked"]
    assert (actions(applied)["AIGatewayRoute/web"], place.get(behind)) == ("deleted", None)
