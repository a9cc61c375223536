# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments of modules for hypothetical changes, and for the failures that a fleet must survive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.api.model_service import Survival
from ..core.planning.question import Question, QuestionError, read_question, read_survival

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

    from ..usecases.fleet_inputs import Settings

T = TypeVar("T")

QUESTIONS: dict[str, Any] = {"what_if": {"type": "raw"}, "survive": {"type": "raw"}}


def problems(values: Mapping[str, Any]) -> list[str]:
    """Return a line for each problem of `what_if` and `survive`, if they are given."""
    return _read(values)[2]


def with_questions(module: AnsibleModule, given: Settings) -> Settings:
    """Return the settings of a build with the questions of a module's arguments."""
    question, survive, problem_lines = _read(module.params)
    if problem_lines:
        module.fail_json(msg="\n".join(problem_lines))
    return replace(given, question=question, survive=survive)


def _read(values: Mapping[str, Any]) -> tuple[Question | None, Survival | None, list[str]]:
    problem_lines: list[str] = []
    question = _value(read_question, values.get("what_if"), problem_lines)
    return question, _value(read_survival, values.get("survive"), problem_lines), problem_lines


def _value(read: Callable[[object], T], argument: object, problem_lines: list[str]) -> T | None:
    """Return the parsed argument, None if it is unset, and append its problems to `problem_lines`."""
    if argument is None:
        return None
    try:
        return read(argument)
    except QuestionError as error:
        problem_lines += error.problems
        return None
