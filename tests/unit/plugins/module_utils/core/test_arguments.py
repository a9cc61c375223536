# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Texts that become arguments of other programs."""

from __future__ import annotations

import os
import shlex

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.arguments import is_plain_word
from ansible_collections.modelplane.fleet.tests.hostile import ARGUMENTS
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    "text",
    [
        "v1.8.1",
        "oci://registry.example:5000/charts/gateway-helm",
        "https://charts.example/stable",
        "/srv/charts/lws-v0.8.0.tgz",
        "mp-cert-manager",
    ],
)
def test_what_is_used_is_a_plain_word(text: str) -> None:
    assert is_plain_word(text)


@pytest.mark.parametrize("text", ARGUMENTS)
def test_what_would_be_more_than_a_word_is_none(text: str) -> None:
    assert not is_plain_word(text)


@given(st.text() | st.text(alphabet="-~$ '\"\\\n\tab/=.%{}#&;|<>*?()!`"))
def test_a_plain_word_stays_what_it_is(text: str) -> None:
    """As kubernetes.core.helm joins it into a command, and AnsibleModule.run_command splits that again."""
    if is_plain_word(text):
        for command in (f"helm upgrade {text}", f"helm --version={text}"):
            *_, last = shlex.split(command)
            assert os.path.expanduser(os.path.expandvars(last)).removeprefix("--version=") == text
        assert not text.startswith("-")
