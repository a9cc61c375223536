# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The definitions of extensions/awx: what the modules of awx.awx and AWX itself accept, and what the collection has."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.template import is_trusted_as_template
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections, inventory_variables
from ansible_collections.modelplane.fleet.plugins.modules import reconcile, wait_for_change
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain
from botocore.configprovider import BOTOCORE_DEFAUT_SESSION_VARIABLES
from dateutil.rrule import rrulestr
from google.auth import environment_vars

ROOT = Path(__file__).parents[2]
AWX = ROOT / "extensions/awx"
OF_RULEBOOKS = {"notify", "pull", "recover"}
"""Playbooks that ansible-rulebook runs; controllers run job templates in their place."""
OF_TERMINALS = {"keys"}
"""Playbooks that show secrets on a terminal, which controllers record."""
PLAYBOOKS = {
    path.stem: path
    for path in sorted((ROOT / "playbooks").glob("*.yml"))
    if path.stem not in OF_RULEBOOKS | OF_TERMINALS
}
DATA = ROOT / "tests/data/awx"
DISPATCHED = frozenset(json.loads((DATA / "dispatch.json").read_text())["variables"])
SPECS = json.loads((DATA / "modules.json").read_text())["modules"]
MODULES = {
    "aap_organizations": "organization",
    "controller_credential_types": "credential_type",
    "controller_credentials": "credential",
    "controller_execution_environments": "execution_environment",
    "controller_projects": "project",
    "controller_inventories": "inventory",
    "controller_inventory_sources": "inventory_source",
    "controller_templates": "job_template",
    "controller_workflows": "workflow_job_template",
    "controller_schedules": "schedule",
}
"""The module of awx.awx for the items of each list."""
GENERATED = {
    "fleet_drain": "fleet_hosts",
    "eks_cluster_state": "{}_cluster_state",
    "gke_cluster_state": "{}_cluster_state",
}
"""Variables that playbooks read by other names, and the text by which they do."""
ENVIRONMENT = {
    BOTOCORE_DEFAUT_SESSION_VARIABLES["credentials_file"][1],
    environment_vars.CREDENTIALS,
    # Of inventories whose `control` reads it, which docs/awx.md shows.
    "MODELPLANE_CONTROL_KUBECONFIG",
}
QUESTION_TYPES = {"text": str, "textarea": str, "password": str, "multiplechoice": str, "multiselect": str}
NUMBER_TYPES = {"integer": int, "float": float}


def _loaded(path: Path) -> dict[str, Any]:
    # As include_vars does: text is a template, unless the file says that it is none.
    return dict(DataLoader().load_from_file(str(path), trusted_as_template=True))


DEFINITIONS: dict[str, list[dict[str, Any]]] = {
    name: plain(items) for path in sorted((AWX / "definitions").glob("*.yml")) for name, items in _loaded(path).items()
}
TEMPLATES = {item["name"]: item for item in DEFINITIONS["controller_templates"]}
BY_PLAYBOOK = {Path(item["playbook"]).stem: item for item in TEMPLATES.values()}
SURVEYED = [*DEFINITIONS["controller_templates"], *DEFINITIONS["controller_workflows"]]
ITEMS = [pytest.param(name, item, id=f"{name}: {item['name']}") for name in DEFINITIONS for item in DEFINITIONS[name]]
QUESTIONS = [
    pytest.param(question, id=f"{item['name']}: {question['variable']}")
    for item in SURVEYED
    for question in item["survey_spec"]["spec"]
]


def names(variable: str) -> set[str]:
    return {item["name"] for item in DEFINITIONS[variable]}


# What loads them


def test_each_list_is_one_that_both_ways_of_loading_know() -> None:
    assert DEFINITIONS.keys() == MODULES.keys() == DISPATCHED
    tasks = _loaded_play(AWX / "load.yml")["tasks"]
    assert [path.stem for path in sorted((AWX / "definitions").glob("*.yml"))]
    loads = {
        re.fullmatch(r"{{ (\w+) }}", task["loop"])[1]: next(name for name in task if name.startswith("awx.awx."))  # type: ignore[index]
        for task in tasks
        if "loop" in task
    }
    assert loads == {variable: f"awx.awx.{module}" for variable, module in MODULES.items()}


@pytest.mark.parametrize(("variable", "item"), ITEMS)
def test_an_item_is_what_its_module_accepts(variable: str, item: dict[str, Any]) -> None:
    found = ArgumentSpecValidator(SPECS[MODULES[variable]]).validate(item)
    assert found.error_messages == []
    # Roles read the keys of an item by the names of the options, and no aliases.
    assert item.keys() <= SPECS[MODULES[variable]].keys()


def test_items_refer_to_each_other_by_names_that_there_are() -> None:
    referred = {
        "organization": "aap_organizations",
        "credential_type": "controller_credential_types",
        "execution_environment": "controller_execution_environments",
        "project": "controller_projects",
        "source_project": "controller_projects",
        "inventory": "controller_inventories",
        "unified_job_template": "controller_templates",
    }
    missing = [
        f"{variable}: {item['name']}: {key} {item[key]}"
        for variable, items in DEFINITIONS.items()
        for item in items
        for key, other in referred.items()
        if key in item and item[key] not in names(other)
    ]
    missing += [
        f"{item['name']}: {name}"
        for item in DEFINITIONS["controller_templates"]
        for name in item.get("credentials", ())
        if name not in names("controller_credentials")
    ]
    assert missing == []
    assert all(len(names(variable)) == len(items) for variable, items in DEFINITIONS.items())


def test_the_source_of_the_inventory_is_a_file_of_the_plugin() -> None:
    (source,) = DEFINITIONS["controller_inventory_sources"]
    path = AWX / "project" / source["source_path"]
    assert _loaded(path)["plugin"] == "modelplane.fleet.fleet"
    assert source["source"] == "scm"


# Job templates and surveys


def test_each_playbook_has_one_job_template_and_one_file_in_the_project() -> None:
    assert BY_PLAYBOOK.keys() == PLAYBOOKS.keys()
    assert len(TEMPLATES) == len(BY_PLAYBOOK)
    for stem, template in BY_PLAYBOOK.items():
        play = _loaded_play(AWX / "project" / template["playbook"])
        assert play["ansible.builtin.import_playbook"] == f"modelplane.fleet.{stem}"
    assert {path.stem for path in (AWX / "project/playbooks").iterdir()} == PLAYBOOKS.keys()


@pytest.mark.parametrize("item", [pytest.param(item, id=item["name"]) for item in SURVEYED])
def test_a_survey_is_what_awx_accepts(item: dict[str, Any]) -> None:
    survey = item["survey_spec"]
    assert item["survey_enabled"]
    assert survey["name"]
    assert survey["description"]
    assert survey["spec"]
    variables = [question["variable"] for question in survey["spec"]]
    assert len(variables) == len(set(variables))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_what_awx_accepts(question: dict[str, Any]) -> None:
    kind = question["type"]
    assert {"question_name", "question_description", "variable", "type", "required"} <= question.keys()
    assert isinstance(question["required"], bool)
    known = {
        "question_name",
        "question_description",
        "variable",
        "type",
        "required",
        "default",
        "min",
        "max",
        "choices",
    }
    assert question.keys() <= known
    assert all(type(question[limit]) is int for limit in ("min", "max") if limit in question)
    expected = {**QUESTION_TYPES, **NUMBER_TYPES}[kind]
    assert isinstance(question.get("default", expected()), expected)
    assert ("choices" in question) == (kind in ("multiplechoice", "multiselect"))
    if "choices" in question:
        assert all(isinstance(choice, str) for choice in question["choices"])
        assert set(question.get("default", "").splitlines()) <= set(question["choices"])
    # Schedules and workflows give no answers: one that is required and has no default would keep them from starting.
    assert "default" not in question or not question["required"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_is_about_a_variable_of_the_collection(question: dict[str, Any]) -> None:
    variable, kind = question["variable"], question["type"]
    spec = _variables()[variable]
    if spec["type"] == "bool":
        assert (kind, sorted(question["choices"])) == ("multiplechoice", ["false", "true"])
    elif spec["type"] in ("int", "float"):
        assert kind in ("integer",) if spec["type"] == "int" else kind in NUMBER_TYPES
        least = inventory_variables.LEAST.get(variable, 1)
        assert least <= question["min"] <= question["default"] <= question["max"]
    elif "choices" in spec:
        assert kind == ("multiselect" if spec["type"] == "list" else "multiplechoice")
        assert question["choices"] == spec["choices"]
    else:
        assert spec["type"] in ("str", "list")
        assert kind == "text"
    if (default := _default(variable)) is not None:
        given = question["default"]
        assert (given if isinstance(given, int) else str(given)) == (
            str(default).lower() if kind == "multiplechoice" else default
        )


@pytest.mark.parametrize("stem", BY_PLAYBOOK)
def test_a_survey_asks_for_what_its_playbook_reads(stem: str) -> None:
    text = "\n".join(path.read_text() for path in sorted(_read_by(PLAYBOOKS[stem])))
    asked = [question["variable"] for question in BY_PLAYBOOK[stem]["survey_spec"]["spec"]]
    assert [
        name for name in asked if not re.search(rf"\b{name}\b", text) and GENERATED.get(name, "\0") not in text
    ] == []


@pytest.mark.parametrize("stem", BY_PLAYBOOK)
def test_every_answer_is_a_value_that_the_playbooks_accept(stem: str) -> None:
    for answers in _answers(BY_PLAYBOOK[stem]["survey_spec"]["spec"]):
        known = {name: value for name, value in answers.items() if name in inventory_variables.OF_FLEET}
        assert inventory_variables.problems("control", known, {}, build=False) == []


def test_only_jobs_that_hosts_alone_decide_can_be_sliced() -> None:
    sliced = {stem for stem, item in BY_PLAYBOOK.items() if item.get("ask_job_slice_count_on_launch")}
    assert sliced == {"apply", "check", "serving_stack"}
    counts = {stem: item["job_slice_count"] for stem, item in BY_PLAYBOOK.items() if "job_slice_count" in item}
    # AWX runs slices one after the other unless the template lets jobs run simultaneously.
    assert counts == {"apply": 4, "teardown": 1}
    assert BY_PLAYBOOK["apply"]["allow_simultaneous"]


def test_a_launch_as_it_stands_deletes_no_cluster() -> None:
    dry = {stem for stem, item in BY_PLAYBOOK.items() if item.get("job_type", "run") == "check"}
    assert dry == {"provision", "teardown"}
    assert all(BY_PLAYBOOK[stem]["ask_job_type_on_launch"] for stem in dry)


# Workflow and schedules


@pytest.mark.parametrize(
    ("name", "follows", "after_failures", "playbooks"),
    [
        (
            "Fleet rollout",
            {"plan": ["approval"], "approval": ["site"], "site": []},
            {},
            {"plan": "site", "approval": "", "site": "site"},
        ),
        (
            "Fleet reconcile in slices",
            {"decide": ["apply"], "apply": [], "route": []},
            {"apply": ["route"]},
            {"decide": "decide", "apply": "apply", "route": "decide"},
        ),
    ],
)
def test_a_workflow_is_what_the_guide_says(
    name: str, follows: dict[str, list[str]], after_failures: dict[str, list[str]], playbooks: dict[str, str]
) -> None:
    (workflow,) = [each for each in DEFINITIONS["controller_workflows"] if each["name"] == name]
    nodes = {node["identifier"]: node for node in workflow["workflow_nodes"]}
    assert len(workflow["workflow_nodes"]) == len(nodes)
    assert {each: _after(node, "success_nodes") for each, node in nodes.items()} == follows
    always = {each: _after(node, "always_nodes") for each, node in nodes.items() if node["related"]["always_nodes"]}
    assert always == after_failures
    assert not any(node["related"]["failure_nodes"] for node in nodes.values())
    jobs = {each: TEMPLATES.get(node["unified_job_template"]["name"]) for each, node in nodes.items()}
    assert {each: Path(job["playbook"]).stem if job else "" for each, job in jobs.items()} == playbooks
    types = {each: node["unified_job_template"]["type"] for each, node in nodes.items()}
    assert types == {each: "job_template" if stem else "workflow_approval" for each, stem in playbooks.items()}
    # A job takes no variable that it does not ask for, and what is asked about manifests is for those that read them.
    for question in workflow["survey_spec"]["spec"]:
        asked = [job for stem, job in BY_PLAYBOOK.items() if stem in playbooks.values() and stem != "apply"]
        assert all(question in job["survey_spec"]["spec"] for job in asked), question


def test_what_is_approved_is_what_the_next_job_would_change() -> None:
    (workflow,) = [each for each in DEFINITIONS["controller_workflows"] if each["name"] == "Fleet rollout"]
    chosen = {node["identifier"]: (node.get("job_type"), node.get("diff_mode")) for node in workflow["workflow_nodes"]}
    assert chosen == {"plan": ("check", True), "approval": (None, None), "site": (None, None)}
    # AWX takes of a node only what its template asks for.
    assert BY_PLAYBOOK["site"]["ask_job_type_on_launch"]
    assert BY_PLAYBOOK["site"]["ask_diff_mode_on_launch"]


def _after(node: dict[str, Any], when: str) -> list[str]:
    return [each["identifier"] for each in node["related"][when]]


@pytest.mark.parametrize(
    "schedule", [pytest.param(each, id=each["name"]) for each in DEFINITIONS["controller_schedules"]]
)
def test_a_schedule_is_what_awx_accepts(schedule: dict[str, Any]) -> None:
    rule = str(schedule["rrule"])
    assert re.fullmatch(r"DTSTART;TZID=[\w/]+:\d{8}T\d{6} RRULE:[A-Z=;,\d]+", rule)
    assert "INTERVAL=" in rule
    assert not re.search("SECONDLY|BYYEARDAY|BYWEEKNO|COUNT=|UNTIL=", rule)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    times = rrulestr(rule.replace(" ", "\n")).xafter(start, count=3)
    assert len({*times}) == 3
    template = TEMPLATES[schedule["unified_job_template"]]
    assert template["playbook"] == "playbooks/status.yml"
    questions = {question["variable"]: question for question in template["survey_spec"]["spec"]}
    for variable, value in schedule["extra_data"].items():
        assert set(value) <= set(questions[variable]["choices"])
    assert not any(question["required"] for question in questions.values())


# Credential types


@pytest.mark.parametrize(
    "credential_type",
    [
        pytest.param(each, id=each["name"])
        for each in _loaded(AWX / "definitions/credential_types.yml")["controller_credential_types"]
    ],
)
def test_a_credential_type_injects_its_fields_into_what_is_read(credential_type: dict[str, Any]) -> None:
    fields = {field["id"]: field for field in credential_type["inputs"]["fields"]}
    injectors = credential_type["injectors"]
    assert set(credential_type["inputs"]["required"]) <= fields.keys()
    assert all(field["secret"] for field in fields.values())
    assert injectors.keys() <= {"file", "env", "extra_vars"}
    files = {name.removeprefix("template.") for name in injectors["file"]}
    known = {*fields, *(f"tower.filename.{name}" for name in files)}
    used = set()
    for text in (value for values in injectors.values() for value in values.values()):
        assert not is_trusted_as_template(text), f"{text} is a template of the run that loads it: write !unsafe"
        used.add(re.fullmatch(r"{{ ([\w.]+) }}", str(text))[1])  # type: ignore[index]
    assert used == known
    assert set(injectors.get("env", ())) <= ENVIRONMENT
    ours = {*connections.CLUSTER_VARIABLES, *connections.CONTROL_VARIABLES} - {"inventory_dir"}
    assert set(injectors.get("extra_vars", ())) <= ours


def test_environment_variables_of_ours_are_documented() -> None:
    assert "MODELPLANE_CONTROL_KUBECONFIG" in (ROOT / "docs/awx.md").read_text()


def test_credentials_are_no_literals() -> None:
    for credential in DEFINITIONS["controller_credentials"]:
        (kind,) = [
            each for each in DEFINITIONS["controller_credential_types"] if each["name"] == credential["credential_type"]
        ]
        assert set(kind["inputs"]["required"]) <= credential["inputs"].keys()
        assert all(str(value).startswith("{{ modelplane_awx_") for value in credential["inputs"].values())


def test_every_variable_of_the_user_is_documented() -> None:
    used = set()
    for path in (AWX / "definitions").glob("*.yml"):
        used |= set(re.findall(r"modelplane_awx_\w+", path.read_text()))
    page = (ROOT / "docs/awx.md").read_text()
    assert used
    assert [name for name in sorted(used) if f"`{name}`" not in page] == []


def _loaded_play(path: Path) -> dict[str, Any]:
    (play,) = DataLoader().load_from_file(str(path))
    return dict(play)


@functools.cache
def _variables() -> dict[str, Any]:
    """Return the specs of all variables that a survey may ask for."""
    found = dict(inventory_variables.OF_FLEET)
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        for entry in _loaded(path)["argument_specs"].values():
            found.update(entry["options"])
    states = {
        "existing_cluster_state": _loaded_play(PLAYBOOKS["check"])["vars"]["_fleet_checks"],
        "serving_stack_state": _loaded_play(PLAYBOOKS["serving_stack"])["vars"]["_fleet_stacks"],
    }
    clouds = _loaded(ROOT / "playbooks/vars/clouds.yml")["_fleet_tasks_of_state"]
    states |= {name: clouds for name in inventory_variables.OF_PLAYBOOKS if name not in states}
    found |= {name: {"type": "str", "choices": [*choices]} for name, choices in states.items()}
    assert re.search(
        r"control_plane_workload_rights \| default\(false\) \| bool", PLAYBOOKS["control_plane"].read_text()
    )
    found["control_plane_workload_rights"] = {"type": "bool"}
    return found


def _default(variable: str) -> Any:
    """Return what a variable is when no one sets it, None if that is nothing."""
    spec = _variables()[variable]
    arguments = {**wait_for_change.ARGUMENTS["argument_spec"], **reconcile.ARGUMENTS["argument_spec"]}
    loop = {"fleet_loop_interval": "interval", "fleet_loop_resync": "max_wait"}
    option = arguments.get(loop.get(variable, variable.removeprefix("fleet_")), {})
    defaults = re.findall(
        rf"\b{variable} \| default\((?!omit)'?(\w+)'?\)", "\n".join(p.read_text() for p in PLAYBOOKS.values())
    )
    found = spec.get("default", option.get("default", defaults[0] if defaults else None))
    if found in ("", [], None):
        return None
    return int(found) if spec["type"] in ("int", "float") else found


def _read_by(path: Path) -> set[Path]:
    """Return the files of a playbook: itself, what it imports, and its roles."""
    found: set[Path] = set()
    todo = [path]
    while todo:
        each = todo.pop()
        if each in found:
            continue
        found.add(each)
        text = each.read_text()
        near = [ROOT / "playbooks", ROOT / "playbooks/tasks", each.parent]
        imported = re.findall(r"(?:import_playbook|(?:import|include)_tasks): (\S+\.yml)", text)
        imported += [name for line in re.findall(r"vars_files: \[(.*)\]", text) for name in line.split(", ")]
        todo += [folder / name for name in imported for folder in near if (folder / name).is_file()]
        for role in re.findall(r"name: \"?modelplane\.fleet\.([\w{}. ]+)", text):
            pattern = re.sub(r"{{.*?}}", "*", role)
            todo += [
                file
                for place in (ROOT / "roles").glob(pattern)
                for file in place.rglob("*.yml")
                if "meta" not in file.parts
            ]
    return found


def _answers(questions: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield answers as AWX gives them: the defaults and no text, then each choice and limit for each question."""
    first = {each["variable"]: each.get("default", "") for each in questions if each["type"] != "multiselect"}
    yield first
    for question in questions:
        for value in (
            *question.get("choices", ()),
            *(question[key] for key in ("min", "max") if "choices" not in question and key in question),
        ):
            if question["type"] == "multiselect":
                yield {**first, question["variable"]: [value]}
            elif question["type"] != "text":
                yield {**first, question["variable"]: value}
