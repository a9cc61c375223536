# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments of modules that ask what would be, and what a fleet has to survive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import (
    QuestionError,
    read_question,
    read_survival,
)

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule
    from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import Settings

QUESTIONS: dict[str, Any] = {"what_if": {"type": "raw"}, "survive": {"type": "raw"}}
_READERS: Mapping[str, Callable[[object], object]] = {"what_if": read_question, "survive": read_survival}


def problems(values: Mapping[str, Any]) -> list[str]:
    """Return a line for each problem of `what_if` and `survive`, as far as they are given."""
    found: list[str] = []
    for name, read in _READERS.items():
        if values.get(name) is not None:
            try:
                read(values[name])
            except QuestionError as error:
                found += error.problems
    return found


def asked(module: AnsibleModule, given: Settings, *, tries_losses: bool) -> Settings:
    """Return the settings of a build with the module's arguments. `tries_losses`: of a run that tries losses."""
    found = problems(module.params)
    if found:
        module.fail_json(msg="\n".join(found))
    what_if, survive = (module.params[name] for name in QUESTIONS)
    return replace(
        given,
        question=None if what_if is None else read_question(what_if),
        survive=None if survive is None else read_survival(survive),
        tries_losses=tries_losses,
    )
