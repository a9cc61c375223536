# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Texts from outside that leave a run as variables are no templates there, by the word of Ansible itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.modelplane.fleet.plugins.module_utils.core import incidents, notification
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import without_templates

TEXTS = [
    "{{ 7 * 6 }}",
    "{{7*6}}",
    "{{- 7 * 6 -}}",
    "{{{ 7 * 6 }}}",
    "{{{{ 7 * 6 }}}}",
    "a pod {{ lookup('ansible.builtin.env', 'HOME') }} failed",
    "{% set a = 1 %}{% if a %}x{% endif %}",
    "{%- raw -%}x{%- endraw -%}",
    "{# a comment #}x",
    "{#- a comment -#}",
    "#jinja2: variable_start_string:'[%', variable_end_string:'%]'\n[% 7 * 6 %]",
    "#jinja2:variable_start_string:'<<',variable_end_string:'>>'\n<< 7 * 6 >>",
    "#jinja2: trim_blocks: False\n{{ 7 * 6 }}",
    "#jinja2:nothing",
    "line\n{{ 7 * 6 }}",
    "{\u007b 7 * 6 }}",
]
PLAIN = ["{a: {b: 1}}", '{"a": {"b": 1}}', "100 %}", "# jinja2: is used", "a #jinja2: b", "{ {", "}}", ""]


def evaluated(value: Any) -> Any:
    """Return the value that another run has for an extra variable, whose texts are trusted."""
    return Templar(loader=DataLoader(), variables={}).template(trusted(value))


def trusted(value: Any) -> Any:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {trusted(key): trusted(each) for key, each in value.items()}
    return [trusted(each) for each in value] if isinstance(value, list) else value


def texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (*texts_of(key), *texts_of(each))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from texts_of(each)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_from_outside_is_evaluated_nowhere(text: str) -> None:
    shown = without_templates(text)
    assert evaluated(shown) == shown
    assert shown.replace(" ", "") == text.replace(" ", "")
    nested = without_templates({"a": [text, {text: (text, 1, None, True)}]})
    assert evaluated(nested) == nested
    assert list(texts_of(nested)) == ["a", shown, shown, shown]


@pytest.mark.parametrize("text", PLAIN)
def test_other_texts_stay(text: str) -> None:
    assert without_templates(text) == text


@pytest.mark.parametrize("text", TEXTS)
def test_events_and_notifications_are_evaluated_nowhere(text: str) -> None:
    subject = incidents.Subject(incidents.DEPLOYMENT_PENDING, text, text)
    event = incidents.Event(subject, incidents.DEPLOYMENT_PENDING, text, text, text).document()
    assert evaluated(event) == event
    trouble = notification.Trouble("pending", text, text)
    found = notification.Notification(text, {"playbook": text}, changed=False, wrong=[trouble])
    document = notification.document(found, ["failed"], text)
    assert evaluated(document) == document
