# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.notifications import asked, problems
from ansible_collections.modelplane.fleet.plugins.module_utils.core import incidents, notification

RUN = {"play": "Reconcile the fleet"}
READ = {
    "changed": True,
    "summary": {"clusters": 3, "placed": 4, "pending": 1, "objects": 44},
    "clusters": {
        "east": {"failed": False, "changed": True, "msg": ""},
        "west": {"failed": True, "changed": False, "msg": "no connection to\nhttps://west"},
    },
    "failed_clusters": ["west"],
    "outcome": {
        "replicas": {"pending": 2},
        "findings": {
            "pending": ["team/big: 2 of 2 replicas pending: NoCapacity: too large"],
            "unready": ["replica team/bad-1 on east: ImagePullBackOff: no such image"],
        },
    },
}


def test_a_document_has_all_that_is_wrong() -> None:
    found = notification.of_run("prod", RUN, READ, left_out=["north", "west"])
    document = notification.document(found, found.events(()), "2026-11-26T18:00:00Z")
    assert document == {
        "schema": "modelplane.ai/notification/v1",
        "fleet": "prod",
        "run": RUN,
        "time": "2026-11-26T18:00:00Z",
        "outcome": "failed",
        "events": ["failed", "unready", "pending", "changed"],
        "counts": {
            "clusters": 3,
            "clusters_failed": 2,
            "clusters_changed": 1,
            "replicas_placed": 4,
            "replicas_pending": 2,
            "unready": 1,
            "objects": 44,
        },
        "wrong": [
            {"event": "failed", "subject": "cluster west", "reason": "no connection to https://west"},
            {"event": "failed", "subject": "cluster north", "reason": "an earlier step failed"},
            {
                "event": "unready",
                "subject": "replica team/bad-1 on east",
                "reason": "ImagePullBackOff: no such image",
            },
            {
                "event": "pending",
                "subject": "deployment team/big",
                "reason": "2 of 2 replicas pending: NoCapacity: too large",
            },
        ],
        "wrong_more": 0,
        "text": "Fleet prod: 2 of 3 clusters failed, 1 not ready, 2 replicas pending. cluster west: no "
        "connection to https://west. cluster north: an earlier step failed. replica team/bad-1 on east: "
        "ImagePullBackOff: no such image. and 1 more",
    }


@pytest.mark.parametrize(
    ("kind", "of", "event", "text"),
    [
        ("cluster_lost", {"cluster": "west"}, "failed", "Fleet prod: cluster lost. cluster west: Why: It is so."),
        (
            "cluster_recovered",
            {"cluster": "west"},
            "recovered",
            "Fleet prod: cluster recovered. cluster west: Why: It is so.",
        ),
        (
            "deployment_pending",
            {"namespace": "team", "deployment": "big"},
            "pending",
            "Fleet prod: deployment pending. deployment team/big: Why: It is so.",
        ),
        (
            "deployment_placed",
            {"namespace": "team", "deployment": "big"},
            "recovered",
            "Fleet prod: deployment placed. deployment team/big: Why: It is so.",
        ),
    ],
)
def test_a_document_about_an_event(kind: str, of: dict[str, str], event: str, text: str) -> None:
    reported = {"type": kind, "cluster": "", "namespace": "", "deployment": "", "since": "2026-11-26T17:00:00Z"}
    reported |= {"reason": "Why", "message": "It is so.", **of}
    document = notification.of_event("prod", reported, "2026-11-26T18:00:00Z")
    assert (document["outcome"], document["events"], document["event"]) == (event, [event], reported)
    assert document["text"] == text
    assert [(each["event"], each["reason"]) for each in document["wrong"]] == (
        [] if event == "recovered" else [(event, "Why: It is so.")]
    )


def test_the_events_of_the_event_source_are_known() -> None:
    assert {*incidents.ENDS, *incidents.ENDS.values()} == {*notification.INCIDENTS}


def test_a_run_that_failed_as_a_whole_says_why_and_nothing_else() -> None:
    found = notification.of_run("prod", RUN, {"failed": True, "msg": "a.yaml:3: x\x1b"}, left_out=["east", "west"])
    assert [str(each) for each in found.wrong] == ["the run: a.yaml:3: x\\x1b"]
    assert notification.line(found, found.events(())) == "Fleet prod: the run failed. the run: a.yaml:3: x\\x1b"


def test_a_run_that_failed_for_its_manifests_says_what_is_wrong_with_them() -> None:
    result = {"failed": True, "msg": "2 errors in the manifests", "errors": ["a.yaml:3, spec: Is required.", "b: X."]}
    found = notification.of_run("prod", RUN, result)
    assert [each.reason for each in found.wrong] == ["2 errors in the manifests: a.yaml:3, spec: Is required. b: X."]


@pytest.mark.parametrize(
    ("result", "before", "events"),
    [
        ({}, (), []),
        ({"changed": True}, (), ["changed"]),
        ({"changed": True}, ("failed: cluster west",), ["recovered", "changed"]),
        ({"failed": True, "msg": "x"}, ("pending: x",), ["failed"]),
    ],
)
def test_events(result: dict[str, Any], before: tuple[str, ...], events: list[str]) -> None:
    found = notification.of_run("prod", RUN, result)
    assert found.events(before) == events
    assert notification.document(found, found.events(before), "")["outcome"] == (events or ["unchanged"])[0]


@pytest.mark.parametrize("changes", [{"control_changed": True}, {"changed_clusters": ["east"]}])
def test_a_run_whose_changes_are_reported_by_host_has_changed(changes: dict[str, Any]) -> None:
    assert notification.of_run("prod", RUN, {"changed": False, **changes}).events(()) == ["changed"]


def test_much_that_is_wrong_is_counted() -> None:
    clusters = {f"c{index:02}": {"failed": True, "msg": "down " * 999} for index in range(30)}
    found = notification.of_run("prod", RUN, {"clusters": clusters})
    document = notification.document(found, found.events(()), "")
    assert (len(document["wrong"]), document["wrong_more"]) == (20, 10)
    assert len(str(document)) < 20_000


def test_slack_gets_text_without_links_and_mentions() -> None:
    found = notification.of_run("prod", RUN, {"failed": True, "msg": "<!channel> & <https://x|y>"})
    message = notification.slack(notification.document(found, found.events(()), ""))
    assert message == {"text": "*Fleet prod: the run failed*\n• the run: &lt;!channel&gt; &amp; &lt;https://x|y&gt;"}


@pytest.mark.parametrize(
    ("chosen", "events", "repeated", "expected"),
    [
        (["failed"], ["failed", "changed"], False, True),
        (["failed"], ["failed", "changed"], True, False),
        (["failed", "changed"], ["failed", "changed"], True, True),
        (["pending"], ["failed"], False, False),
        (["recovered"], ["recovered"], False, True),
    ],
)
def test_what_a_hook_asks_for(chosen: list[str], events: list[Any], repeated: bool, expected: bool) -> None:
    assert asked(chosen, events, repeated=repeated) is expected


_KEYS = "it may have url, headers, events, format, ca_file"
_EVENTS = "n[0].events must be a list out of failed, unready, pending, recovered, changed"
URL = "https://hooks.example.com/hunter2"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"url": URL}, []),
        ([{"url": URL, "events": ["changed"], "format": "slack", "headers": {"X": "1"}}], []),
        ([], []),
        (URL, ["n must be a mapping with a url, or a list of such mappings"]),
        ([URL], ["n[0] must be a mapping with a url"]),
        ([{}], ["n[0].url must be a URL that begins with https:// or http://"]),
        ([{"url": "hunter2"}], ["n[0].url must be a URL that begins with https:// or http://"]),
        ([{"url": "https://[hunter2"}], ["n[0].url must be a URL that begins with https:// or http://"]),
        ([{"url": URL, "event": []}], [f"n[0] has an unknown key event: {_KEYS}"]),
        ([{"url": URL, True: []}], [f"n[0] has an unknown key: {_KEYS}"]),
        ([{"url": URL, URL: []}], [f"n[0] has an unknown key: {_KEYS}"]),
        ([{"url": URL, "events": "failed"}], [_EVENTS]),
        ([{"url": URL, "events": ["down"]}], [_EVENTS]),
        ([{"url": URL, "format": "teams"}], ["n[0].format must be json or slack"]),
        ([{"url": URL, "headers": "hunter2"}], ["n[0].headers must be a mapping"]),
    ],
)
def test_problems_of_hooks_have_no_values(value: Any, found: list[str]) -> None:
    assert list(problems(value, "n")) == found
    assert "hunter2" not in "".join(found)
