# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The cloud engine on a cloud in memory that gives out ids, forgets for a while what it created, and refuses calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud import reconciler
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.engine import Engine
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.provider import Action, Operation
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.task import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import PollResult, Wait
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.diff import Change
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.graph import UNKNOWN, has_unknown
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.kinds import (
    Actual,
    Field,
    Kind,
    Phase,
    Resource,
    State,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.ownership import Owners

OWNER = {"cluster": "west", "manager": "us", "fleet": "default"}
PHASES: Mapping[str, Phase] = {"ACTIVE": "ready", "FAILED": "failed", "CREATING": "creating"}


class RefusedError(CloudError):
    """An error of the cloud in memory; its code says what kind."""

    cloud = "The cloud"

    def __init__(self, what: str, message: str = "", *, code: str = "", hint: str = "", passing: bool = False) -> None:
        super().__init__(what, message, code=code, hint=hint, passing=passing)
        self.too_early = "its account to be known" if code in ("TooEarly", "Held") else ""

    @property
    def absent(self) -> bool:
        return self.code in ("NotFound", "TooEarly")

    @property
    def exists(self) -> bool:
        return self.code == "Exists"

    @property
    def outdated(self) -> bool:
        return self.code == "Outdated"

    @property
    def busy(self) -> bool:
        return self.code == "InUse"


class Memory:
    """A provider whose objects are in `there`, by their names. `refuse`: codes with which the next calls of that title
    are refused. `before`: called before a call of that title. `later`: fields that a call that creates does not take.
    A group takes its members along when it is deleted, and an update gives it a new version."""

    owners = Owners("cluster", "manager", "fleet", "us", "tags", "fleet_name")
    error: type[CloudError] = RefusedError
    kinds: Mapping[str, Kind] = {
        "net": Kind(
            title="network", id="Id", owner="Tags", fields=(Field("Range", remediation="Set it back to {before}"),)
        ),
        "group": Kind(
            title="group",
            owner="Tags",
            status="Status",
            phases=PHASES,
            uses=("net",),
            has_nodes=True,
            computed=("Version",),
            fields=(
                Field("Net", update="net"),
                Field("Size", update="size", effect="its nodes restart"),
                Field("Labels", update="labels"),
            ),
        ),
        "member": Kind(title="member", part_of="group", fields=(Field("Version", update="version"),)),
    }

    def __init__(self) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.refuse: dict[str, list[str]] = {}
        self.before: dict[str, Callable[[], Any]] = {}
        self.unseen: Counter[str] = Counter()
        self.later: tuple[str, ...] = ()
        self.held: dict[str, list[str]] = {}
        self.lock = threading.Lock()

    def title(self, resource: Resource) -> str:
        return f"{self.kinds[resource['kind']].title} {resource['name']}"

    def scope(self, resource: Resource) -> str:
        return resource["name"]

    def find(self, resource: Resource) -> Actual | None:
        with self.lock:
            if self.unseen[resource["name"]]:
                self.unseen[resource["name"]] -= 1
                return None
            found = self.there.get(resource["name"])
            return None if found is None else dict(found)

    def state(self, resource: Resource, actual: Actual) -> State:
        return self.kinds[resource["kind"]].state(actual)

    def problems(self, resource: Resource, actual: Actual, listed: Iterable[Resource]) -> Iterator[str]:
        if actual.get("Region") and len(list(listed)) > 0:
            yield f"{self.title(resource)} is elsewhere"

    def warnings(self, resource: Resource, actual: Actual) -> Iterator[str]:
        if actual.get("Old"):
            yield f"{self.title(resource)} is old"

    def creation(self, resource: Resource) -> Action:
        def create() -> None:
            assert not has_unknown(resource["body"])
            body = {key: value for key, value in resource["body"].items() if key not in self.later}
            self.there[resource["name"]] = {**body, "Id": f"id-{resource['name']}", "Kind": resource["kind"]}
            if resource["kind"] == "group":
                self.there[resource["name"]]["Version"] = "1"
            elif resource["kind"] == "member":
                self.there[resource["name"]]["Group"] = resource["parent"]

        return self._action(f"create {resource['name']}", create)

    def updates(self, resource: Resource, _actual: Actual, changes: Sequence[Change]) -> list[Action]:
        def update(change: Change) -> None:
            found = self.there[resource["name"]]
            found[change.field] = change.after
            if resource["kind"] == "group":
                found["Version"] = str(int(found["Version"]) + 1)

        return [
            self._action(f"set {each.field} of {resource['name']} from {each.before}", lambda each=each: update(each))
            for each in changes
        ]

    def deletion(self, resource: Resource, _actual: Actual) -> list[Action]:
        def delete() -> None:
            del self.there[resource["name"]]
            for name in [name for name, found in self.there.items() if found.get("Group") == resource["name"]]:
                del self.there[name]

        return [self._action(f"delete {resource['name']}", delete)]

    def holders(self, resource: Resource, _actual: Actual) -> Iterator[str]:
        if "read holders" in self.refuse:
            raise RefusedError("read holders", "refused", code="Denied")
        yield from self.held.get(resource["name"], [])

    def creation_under_way(self, _resource: Resource) -> Operation | None:
        return None

    def siblings(self, resource: Resource) -> Iterator[tuple[Resource, Actual]]:
        if resource["kind"] != "net":
            return
        for name, found in self.there.items():
            if "Tags" in found:
                yield entry(name, found.get("Kind", "net"), {"Tags": found["Tags"]}), found

    def _action(self, title: str, change: Callable[[], Any]) -> Action:
        def send() -> Operation | None:
            if title in self.before:
                self.before.pop(title)()
            with self.lock:
                codes = self.refuse.get(title) or []
                if codes:
                    raise RefusedError(title, "refused", code=codes.pop(0))
                self.calls.append(title)
                change()
            return Operation(title, lambda: PollResult(f"{title}: DONE", done=True))

        return Action(title, send)


def entry(name: str, kind: str, body: dict[str, Any], needs: Sequence[str] = ()) -> Resource:
    return {"key": name, "kind": kind, "name": name, "parent": "r", "body": {"Tags": OWNER, **body}, "needs": [*needs]}


def net() -> Resource:
    return entry("net", "net", {"Range": "10.0.0.0/16"})


def group(name: str = "group", **body: Any) -> Resource:
    return entry(name, "group", {"Net": {"ref": "net", "field": "Id"}, "Size": 2, **body})


def member(name: str = "member", of: str = "group", **body: Any) -> Resource:
    found = entry(name, "member", {"Version": {"ref": of, "field": "Version"}, **body})
    del found["body"]["Tags"]
    return {**found, "parent": of}


def engine(
    cloud: Memory, *listed: Resource, check: bool = False, until_done: bool = True, kinds: Sequence[str] = ()
) -> tuple[Engine, Changes]:
    changes = Changes(check)
    wait = Wait(5.0, 0.0, lambda _line: None, RefusedError)
    return Engine(cloud, listed, changes, wait, until_done=until_done, kinds=kinds), changes


def present(cloud: Memory, *listed: Resource, purge: bool = False, **more: Any) -> dict[str, Any]:
    return engine(cloud, *listed, **more)[0].present(purge=purge)


def result(
    cloud: Memory, *listed: Resource, absent: bool = False, purge: bool = False, **more: Any
) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the diff, the actions and the warnings of a run."""
    run, changes = engine(cloud, *listed, **more)
    (run.absent if absent else run.present)(purge=purge)
    return changes.result()["diff"], changes.actions, changes.warnings


@pytest.fixture
def cloud() -> Memory:
    return Memory()


@pytest.fixture
def made(cloud: Memory) -> Memory:
    present(cloud, net(), group())
    cloud.calls.clear()
    return cloud


def test_references_are_resolved_once_what_they_name_exists(cloud: Memory) -> None:
    preview, changes = engine(cloud, net(), group(), check=True)
    assert preview.present() == {"net": {}, "group": {}}
    assert changes.result()["diff"]["after"]["group"]["Net"] == UNKNOWN
    assert cloud.calls == []
    found = present(cloud, group(), net())
    assert cloud.calls == ["create net", "create group"]
    assert found["group"]["Net"] == "id-net"
    assert (present(cloud, net(), group()), cloud.calls) == (found, ["create net", "create group"])


def test_a_change_is_computed_from_a_reading_of_a_moment_ago(made: Memory) -> None:
    """An autoscaler moves a group while another object that it needs is changed."""
    made.there["group"]["Labels"] = {"a": "1"}
    made.before["set Size of other from 2"] = lambda: made.there["group"].update(Size=9)
    made.there["other"] = {**made.there["group"]}
    listed = [net(), group("other", Size=3), {**group(Size=9, Labels={"a": "2"}), "needs": ["other"]}]
    made.there["group"]["Size"] = 5
    present(made, *listed)
    assert made.calls == ["set Size of other from 2", "set Labels of group from {'a': '1'}"]


def test_a_busy_object_is_read_again_before_it_is_changed(made: Memory) -> None:
    made.refuse["set Size of group from 2"] = ["InUse", "InUse"]
    made.before["set Size of group from 2"] = lambda: made.there["group"].update(Size=7)
    present(made, net(), group(Size=3))
    assert made.calls == ["set Size of group from 7"]


@pytest.mark.parametrize("code", ["Outdated", "NotFound"])
def test_what_was_changed_meanwhile_is_compared_again(made: Memory, code: str) -> None:
    made.refuse["set Size of group from 2"] = [code, code]
    present(made, net(), group(Size=3))
    assert made.calls == ["set Size of group from 2"]


def test_what_is_deleted_while_it_is_updated(made: Memory) -> None:
    made.refuse["set Size of group from 2"] = ["NotFound"]
    made.before["set Size of group from 2"] = lambda: made.there.pop("group")
    with pytest.raises(RefusedError, match=r"update group group: it was deleted meanwhile\. Run again"):
        present(made, net(), group(Size=3))


def test_what_was_created_may_not_be_found_at_once(cloud: Memory) -> None:
    cloud.before["create net"] = lambda: cloud.unseen.update(net=3)
    assert present(cloud, net(), group())["group"]["Net"] == "id-net"
    assert cloud.calls == ["create net", "create group"]


def test_what_another_run_created_is_adopted_and_updated(cloud: Memory) -> None:
    cloud.refuse["create net"] = ["Exists", "Exists"]
    cloud.before["create net"] = lambda: cloud.there.update(net={"Tags": OWNER, "Range": "10.0.0.0/16", "Id": "id-1"})
    assert present(cloud, net())["net"]["Id"] == "id-1"
    assert cloud.calls == []


def test_a_busy_creation_and_deletion_are_sent_again(made: Memory) -> None:
    made.refuse["delete net"] = ["InUse", "InUse", "InUse"]
    assert engine(made, net(), group())[0].absent() == ["net", "group"]
    assert made.calls == ["delete group", "delete net"]
    assert engine(made, net(), group())[0].absent() == []


def refused_deletion(cloud: Memory, code: str) -> str:
    cloud.refuse["delete net"] = [code] * 1_000_000
    run = Engine(
        cloud, [net(), group()], Changes(False), Wait(0.05, 0.0, lambda _line: None, RefusedError), until_done=True
    )
    with pytest.raises(RefusedError) as raised:
        run.absent()
    return str(raised.value)


@pytest.mark.parametrize("code", ["InUse", "Held"])
def test_a_deletion_that_is_refused_for_too_long_says_what_holds_the_object(
    made: Memory, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_NEW_SECONDS", 0.05)
    made.held["net"] = [f"interface {number}" for number in range(10)]
    said = refused_deletion(made, code)
    assert ("not done after 0 s" if code == "InUse" else "delete net: Held: refused") in said
    named = ", ".join(f"interface {number}" for number in range(8))
    assert said.endswith(f"network net is used by {named} and 2 more. Remove these, then run again")
    assert said.count("Held") == (1 if code == "Held" else 0)


def test_where_nothing_is_known_to_hold_an_object_the_error_is_that_of_the_cloud(made: Memory) -> None:
    assert "is used by" not in refused_deletion(made, "InUse")
    made.refuse["read holders"] = ["Denied"]
    assert "What uses it could not be read: read holders: Denied: refused" in refused_deletion(made, "InUse")


def test_what_is_not_listed_goes_though_a_listed_one_fails(made: Memory) -> None:
    """After that one, so that there is a new one before the old one goes, where it can be had."""
    made.refuse["create new"] = ["Quota"]
    with pytest.raises(RefusedError, match="create new: Quota: refused"):
        present(made, net(), group("new"), purge=True)
    assert made.calls == ["delete group"]
    made.there["theirs"] = {**made.there["net"], "Size": 1, "Tags": {**OWNER, "cluster": "east"}}
    present(made, net(), group("new"), purge=True)
    assert made.calls == ["delete group", "create new"]


def test_unlisted_ones_go_in_the_reverse_order_of_what_they_need(made: Memory) -> None:
    made.there["old-net"] = {**made.there["net"]}
    other = entry("main", "net", {"Range": "10.1.0.0/16"})
    made.there["main"] = {**other["body"], "Id": "id-main"}
    present(made, other, purge=True)
    assert made.calls.index("delete group") < made.calls.index("delete net")
    assert sorted(made.there) == ["main"]


def test_an_object_that_failed_is_deleted_and_created_again(made: Memory) -> None:
    made.there["group"]["Status"] = "FAILED"
    present(made, net(), group(Status="ACTIVE"))
    assert made.calls == ["delete group", "create group"]


def test_nothing_is_begun_when_one_cannot_be_changed_or_is_another_owners(made: Memory) -> None:
    made.there["group"]["Tags"] = {**OWNER, "fleet": "blue"}
    listed = [{**net(), "body": {**net()["body"], "Range": "10.9.0.0/16"}}, group(), group("more")]
    with pytest.raises(RefusedError) as refused:
        present(made, *listed)
    assert "network net: cannot change Range from 10.0.0.0/16 to 10.9.0.0/16. Set it back to 10.0.0.0/16" in str(
        refused.value
    )
    assert "group group exists already, and has another owner: fleet=blue in its tags, not default" in str(
        refused.value
    )
    made.there["net"]["Region"] = "east"
    with pytest.raises(RefusedError, match="network net is elsewhere"):
        engine(made, net())[0].absent()
    assert made.calls == []


def test_what_needs_a_failed_object_is_not_begun(cloud: Memory) -> None:
    cloud.refuse["create net"] = ["Quota"]
    with pytest.raises(RefusedError, match="group was not begun, as it needs net"):
        present(cloud, net(), group())
    assert cloud.calls == []


def test_without_waiting_the_next_run_goes_on(cloud: Memory) -> None:
    run, _ = engine(cloud, net(), group(), until_done=False)
    run.present()
    assert cloud.calls == ["create net"]
    assert run.pending == ["create net is under way: run again", "group group comes once net is done: run again"]
    run, _ = engine(cloud, net(), group(), until_done=False)
    run.present()
    assert cloud.calls == ["create net", "create group"]


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([net(), net()], "a key is listed twice"),
        ([group()], "group needs net, which is not among them"),
        ([{**net(), "needs": ["group"]}, group()], "these need each other: group, net"),
    ],
)
def test_lists_that_cannot_be(cloud: Memory, listed: list[Resource], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        engine(cloud, *listed)


# Kinds and parts


def test_kinds_that_are_not_named_are_read_only(cloud: Memory) -> None:
    first = [net(), group()]
    assert present(cloud, *first, kinds=["net"])["group"] == {}
    assert cloud.calls == ["create net"]
    present(cloud, *first)
    cloud.there["group"].update(Size=9, Status="ACTIVE")
    cloud.there["net"]["Range"] = "10.9.0.0/16"
    # What would be refused in the others is no matter of this run.
    assert result(cloud, *first, kinds=["group"], check=True)[0]["after"] == {"group": {"Size": 2}}
    cloud.there["extra"] = {**cloud.there["net"], "Id": "id-extra"}
    cloud.calls.clear()
    present(cloud, *first, kinds=["group"], purge=True)
    assert cloud.calls == ["set Size of group from 9"]
    assert engine(cloud, *first, kinds=["group"])[0].absent() == ["group"]
    assert set(cloud.there) == {"net", "extra"}
    with pytest.raises(RefusedError, match=r"there is no kind gruop\. Did you mean group\?"):
        engine(cloud, net(), kinds=["gruop"])


def test_parts_are_created_again_with_their_parent_and_deleted_with_it(cloud: Memory) -> None:
    listed = [net(), group("a", Status="ACTIVE"), group("b"), member("of-a", "a"), member("of-b", "b")]
    present(cloud, *listed)
    cloud.there["a"]["Status"] = "FAILED"
    cloud.calls.clear()
    diff, actions, _ = result(cloud, *listed, check=True)
    assert (list(diff["after"]), actions) == (["a", "of-a"], ["create group a", "create member of-a"])
    assert result(cloud, *listed)[1] == actions
    assert cloud.calls == ["delete a", "create a", "create of-a"]
    cloud.calls.clear()
    checked = result(cloud, *listed, absent=True, check=True)
    assert cloud.calls == []
    run, changes = engine(cloud, *listed)
    assert sorted(run.absent()) == ["a", "b", "net"]
    assert sorted(changes.actions) == sorted(checked[1]) == ["delete group a", "delete group b", "delete network net"]
    assert (sorted(cloud.calls[:2]), cloud.calls[2:], cloud.there) == (["delete a", "delete b"], ["delete net"], {})


# Preview


def test_check_mode_foresees_what_updates_of_others_change(cloud: Memory) -> None:
    listed = [net(), group(), member()]
    present(cloud, *listed)
    changed = [net(), group(Size=3), member()]
    diff, actions, _ = result(cloud, *changed, check=True)
    # Which version an update gives is not known before.
    assert diff["after"] == {"group": {"Size": 3}, "member": {"Version": UNKNOWN}}
    assert actions == ["update group group: Size; its nodes restart", "update member member: Version"]
    diff, again, _ = result(cloud, *changed)
    assert diff["after"] == {"group": {"Size": 3}, "member": {"Version": "2"}}
    assert again == actions
    assert result(cloud, *changed) == result(cloud, *changed, check=True) == ({"before": {}, "after": {}}, [], [])


def test_a_creation_is_completed_by_updates(cloud: Memory) -> None:
    cloud.later = ("Labels",)
    listed = [net(), group(Labels={"a": "1"})]
    diff, actions, _ = result(cloud, *listed)
    assert cloud.calls == ["create net", "create group", "set Labels of group from None"]
    assert actions == ["create network net", "create group group"]
    assert diff["after"]["group"]["Labels"] == {"a": "1"}
    # One that another run has created so far is completed, too.
    del cloud.there["group"]["Labels"]
    cloud.calls.clear()
    assert result(cloud, *listed)[1] == ["update group group: Labels"]
    assert cloud.calls == ["set Labels of group from None"]


def test_warnings_are_of_the_state_and_of_the_provider(made: Memory) -> None:
    made.there["net"]["Old"] = True
    for check in (True, False):
        assert result(made, net(), group(), check=check)[2] == ["network net is old"]


# Unlisted objects


def test_absent_deletes_what_is_not_listed_too(made: Memory) -> None:
    made.there["other"] = {**made.there["group"], "Id": "id-other"}
    made.there["theirs"] = {**made.there["other"], "Tags": {**OWNER, "fleet": "blue"}}
    listed = [net(), group()]
    checked = result(made, *listed, absent=True, purge=True, check=True)
    run, changes = engine(made, *listed)
    assert run.absent(purge=True) == ["net", "group"]
    assert changes.result()["diff"] == checked[0]
    assert sorted(changes.actions) == ["delete group group", "delete group other", "delete network net"]
    # A group uses a network, listed or not.
    assert (sorted(made.calls[:2]), made.calls[2]) == (["delete group", "delete other"], "delete net")
    assert list(made.there) == ["theirs"]


def test_unlisted_ones_stay_while_one_that_uses_them_cannot_be_deleted(made: Memory) -> None:
    other = entry("main", "net", {"Range": "10.1.0.0/16"})
    made.there["main"] = {**other["body"], "Id": "id-main"}
    made.refuse["delete group"] = ["Denied"]
    with pytest.raises(RefusedError, match="unlisted net was not begun, as it needs unlisted group"):
        present(made, other, purge=True)
    assert set(made.there) == {"main", "group", "net"}


def test_an_object_that_was_renamed_is_not_unlisted(made: Memory) -> None:
    """It is found by something else than its name, and known by its id."""
    made.there["renamed"] = made.there["net"]
    assert result(made, net(), group(), purge=True) == ({"before": {}, "after": {}}, [], [])


# Calls that are too early


@pytest.mark.parametrize("title", ["create group", "set Size of group from 2"])
def test_calls_that_are_too_early_are_sent_again_and_end_with_the_error_of_the_cloud(
    made: Memory, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if title.startswith("create"):
        del made.there["group"]
    listed = [net(), group(Size=3)]

    monkeypatch.setattr(reconciler, "_NEW_SECONDS", 0.0)
    made.refuse[title] = ["TooEarly"] * 1_000_000
    with pytest.raises(RefusedError, match=f"{title}: TooEarly: refused"):
        present(made, *listed)
    monkeypatch.undo()
    made.refuse[title] = ["TooEarly"] * 3
    present(made, *listed)
    assert made.calls[0] == title


def occupied(**replicas: str) -> Callable[[Resource], str]:
    """Return what keeps a group of the cloud, by its name."""
    return lambda resource: replicas.get(resource["name"], "")


def purged(cloud: Memory, *listed: Resource, check: bool = False, **replicas: str) -> tuple[list[str], list[str]]:
    """Return the actions of a run with `purge`, and what is pending, where replicas run on some groups."""
    changes = Changes(check)
    wait = Wait(5.0, 0.0, lambda _line: None, RefusedError)
    run = Engine(cloud, listed, changes, wait, occupants=occupied(**replicas))
    run.present(purge=True)
    return changes.actions, run.pending


@pytest.mark.parametrize("check", [True, False])
def test_an_unlisted_group_stays_while_replicas_run_on_it(made: Memory, check: bool) -> None:
    """A new group is created at once; the old one, which was renamed, is deleted by the run that finds it empty."""
    renamed = net(), group("new")
    actions, pending = purged(made, *renamed, check=check, group="team/chat-0 runs there")
    assert actions == ["create group new"]
    assert pending == ["group group stays for now: team/chat-0 runs there"]
    assert "group" in made.there
    actions, pending = purged(made, *renamed, check=check)
    assert ("delete group group" in actions, pending) == (True, [])
    assert ("group" in made.there) is check


def test_what_an_occupied_group_uses_stays_with_it(made: Memory) -> None:
    made.there["old-net"] = {**made.there["net"]}
    other = entry("main", "net", {"Range": "10.1.0.0/16"})
    made.there["main"] = {**other["body"], "Id": "id-main"}
    actions, pending = purged(made, other, group="team/chat-0 runs there")
    assert (actions, sorted(made.there)) == ([], ["group", "main", "net", "old-net"])
    assert "network net stays for now: group uses it" in pending
    assert len(pending) == 3


def test_an_occupied_group_stays_though_its_successor_cannot_be_created(made: Memory) -> None:
    made.refuse["create new"] = ["Quota"]
    with pytest.raises(RefusedError, match="create new: Quota: refused"):
        purged(made, net(), group("new"), group="team/chat-0 runs there")
    assert "group" in made.there


def test_listed_groups_and_objects_without_nodes_are_never_asked_for_replicas(made: Memory) -> None:
    made.there["old-net"] = {**made.there["net"], "Id": "id-old"}
    assert purged(made, net(), group(), **{"old-net": "no node", "net": "x", "group": "x"}) == (
        ["delete network old-net"],
        [],
    )
