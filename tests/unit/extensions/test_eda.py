# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The event source and the rulebooks, without ansible-rulebook."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import runpy
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import event_source
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import document_text
from ansible_collections.modelplane.fleet.tests.checkout import ROOT

EDA = ROOT / "extensions" / "eda"
SOURCE = ROOT / ".collections/ansible_collections/modelplane/fleet/extensions/eda/plugins/event_source/fleet.py"
RULEBOOKS = sorted((EDA / "rulebooks").glob("*.yml"))


@pytest.fixture(scope="module")
def source() -> dict[str, Any]:
    """Return the source as ansible-rulebook loads it."""
    return runpy.run_path(str(SOURCE))


def write_plan(folder: Path, *pending: dict[str, str]) -> None:
    (folder / "plan.json").write_text(document_text({"pending": list(pending), "placements": []}))


def run(source: dict[str, Any], args: dict[str, Any]) -> dict[str, str]:
    """Return the first event."""

    async def first() -> dict[str, str]:
        queue: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        task = asyncio.create_task(source["main"](queue, args))
        waiting = asyncio.create_task(queue.get())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        for each in (task, waiting):
            each.cancel()
        if task.done() and not task.cancelled():
            task.result()
        await asyncio.gather(task, return_exceptions=True)
        return waiting.result()

    return asyncio.run(first())


def test_the_source_puts_events_into_the_queue(source: dict[str, Any], tmp_path: Path) -> None:
    write_plan(tmp_path, {"namespace": "ml-team", "deployment": "qwen", "reason": "NoClusters", "message": "none"})
    # Arguments as they are after templates of a rulebook: text.
    args = {"build": str(tmp_path), "deployment_pending_after": "0", "interval": "1", "eda_feedback_queue": None}
    event = run(source, args)
    assert event["type"] == "deployment_pending"
    assert (event["namespace"], event["deployment"], event["cluster"]) == ("ml-team", "qwen", "")


def test_the_source_says_why_statuses_cannot_be_read(
    source: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def turns() -> None:
        task = asyncio.create_task(source["main"](asyncio.Queue(), {"build": str(tmp_path)}))
        while not caplog.records:
            await asyncio.sleep(0)
            if task.done():
                task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with caplog.at_level(logging.WARNING, "modelplane.fleet.fleet"):
        asyncio.run(turns())
    assert "no build folder" in caplog.text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "build, control, clusters"),
        ({"build": "b", "control": {}}, "mutually exclusive"),
        ({"biuld": "b"}, "biuld"),
        ({"build": "b", "interval": 0.5}, "interval is 0.5"),
        ({"build": "b", "interval": "soon"}, "interval"),
        ({"build": "b", "deployment_pending_after": -1}, "deployment_pending_after is -1"),
        ({"build": "b", "forks": 0}, "forks"),
        ({"clusters": [{"kubeconfig": "k"}]}, "name"),
        ({"clusters": [{"name": "a", "context": "x"}, {"name": "a", "context": "y"}]}, "two clusters a"),
    ],
)
def test_arguments_that_are_wrong_are_refused(args: dict[str, Any], message: str) -> None:
    with pytest.raises(event_source.SourceError, match=message):
        event_source.parse(args)


def test_a_secret_is_not_in_the_message() -> None:
    with pytest.raises(event_source.SourceError) as error:
        event_source.parse({"control": {"server": "https://a", "token": "hidden-token", "verify": "maybe"}})
    assert "verify" in str(error.value)
    assert "hidden-token" not in str(error.value)


def test_the_documentation_has_every_option(source: dict[str, Any]) -> None:
    documented = yaml.safe_load(source["DOCUMENTATION"])["options"]
    assert set(documented) == set(event_source.OPTIONS)
    for name, option in event_source.OPTIONS.items():
        assert documented[name]["type"] == option["type"], name
        assert documented[name].get("default") == option.get("default"), name
    for example in yaml.safe_load(source["EXAMPLES"]):
        event_source.parse(example["modelplane.fleet.fleet"])


def rulesets(path: Path) -> list[dict[str, Any]]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, list)
    return found


def actions(ruleset: dict[str, Any]) -> list[dict[str, Any]]:
    return [action for rule in ruleset["rules"] for action in rule.get("actions", [rule.get("action")])]


@pytest.mark.parametrize("path", RULEBOOKS, ids=lambda path: path.name)
def test_no_field_of_an_event_is_part_of_an_action(path: Path) -> None:
    for ruleset in rulesets(path):
        assert "event" not in json.dumps(ruleset["sources"])
        for action in actions(ruleset):
            assert not re.search(r"\{\{[^}]*\bevents?\b", json.dumps(action))


@pytest.mark.parametrize("path", RULEBOOKS, ids=lambda path: path.name)
def test_a_request_does_not_reach_a_playbook(path: Path) -> None:
    """Matching events become extra variables, which Ansible trusts."""
    for ruleset in rulesets(path):
        for rule in ruleset["rules"]:
            if "payload" in rule["condition"]:
                assert list(rule["action"]) == ["post_event"]
                assert all(isinstance(value, str) for value in rule["action"]["post_event"]["event"].values())


@pytest.mark.parametrize("path", [path for path in RULEBOOKS if path.stem.endswith("_job")], ids=lambda path: path.name)
def test_rulebooks_for_controllers_run_job_templates_for_playbooks(path: Path) -> None:
    def without_runs(name: Path) -> list[dict[str, Any]]:
        return [
            {
                **ruleset,
                "rules": [
                    {**rule, "action": {key: value for key, value in rule["action"].items() if key == "post_event"}}
                    for rule in ruleset["rules"]
                ],
            }
            for ruleset in rulesets(name)
        ]

    assert without_runs(path) == without_runs(path.with_stem(path.stem.removesuffix("_job")))
    runs = {key for ruleset in rulesets(path) for action in actions(ruleset) for key in action}
    assert runs - {"post_event"} == {"run_job_template"}


@pytest.mark.parametrize("path", RULEBOOKS, ids=lambda path: path.name)
def test_ansible_rulebook_takes_each_rulebook(path: Path) -> None:
    from ansible_rulebook import rules_parser, validators

    loaded = rulesets(path)
    validators.Validate.rulebook(loaded)
    parsed = [rule for ruleset in loaded for rule in rules_parser.parse_rules(ruleset["rules"], {})]
    assert [rule.name for rule in parsed] == [rule["name"] for rule in loaded[0]["rules"]]


@pytest.mark.parametrize("variables", [{}, {"push_secret": ""}, {"push_secret": "short"}])
def test_the_webhook_does_not_start_without_a_key(variables: dict[str, str]) -> None:
    from ansible_rulebook.util import substitute_variables

    (source,) = rulesets(EDA / "rulebooks" / "push.yml")[0]["sources"]
    key = source["eda.builtin.webhook"]["hmac_secret"]
    assert substitute_variables(key, {"push_secret": "0123456789abcdef"}) == "0123456789abcdef"
    with pytest.raises(jinja2.UndefinedError):
        substitute_variables(key, variables).encode()
