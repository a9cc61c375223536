# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Regular expressions: RE2's syntax and leftmost-first matching, in linear time."""

from __future__ import annotations

import re
import time

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.regex import RegexError, compile_regex
from hypothesis import given
from hypothesis import strategies as st

# Seconds after which work that should be bounded is taken to have no end; how fast it is, is measured elsewhere.
ENDLESS = 60


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a+b", "xaab", (1, 4)),
        ("^a$", "ab", None),
        ("(?i)hop", "xHOP", (1, 4)),
        (r"\bfoo\b", "a foo b", (2, 5)),
        ("(a|ab)(c|bcd)", "abcd", (0, 4)),
        ("a+?", "aaa", (0, 1)),
        ("(?m)^b$", "a\nb", (2, 3)),
        (r"\p{Lu}", "aÉ", (1, 2)),
        ("[[:digit:]-]+", "a1-2", (1, 4)),
    ],
)
def test_matches(pattern: str, text: str, found: tuple[int, int] | None) -> None:
    regex = compile_regex(pattern)
    assert regex.find(text) == found
    assert regex.search(text) == (found is not None)


@pytest.mark.parametrize(
    "pattern", ["a**", "(", ")", "[", "*a", "a{1001}", r"\8", "[z-a]", "(?=a)", r"\Z", r"\1", "a\\"]
)
def test_what_re2_refuses(pattern: str) -> None:
    with pytest.raises(RegexError):
        compile_regex(pattern)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(st.text("ab|*+?()[]^$.", max_size=8), st.text("ab", max_size=8))
def test_agrees_with_python_where_both_take_a_pattern(pattern: str, text: str) -> None:
    try:
        ours = compile_regex(pattern)
        theirs = re.compile(pattern.replace("$", r"\Z"))
    except (RegexError, re.error):
        return
    if "[" in pattern or "++" in pattern or "*+" in pattern or "?+" in pattern:
        return  # a $ within brackets, and Python's possessive operators, mean something else
    assert ours.search(text) == (theirs.search(text) is not None)


def test_time_is_linear() -> None:
    begun = time.process_time()
    assert not compile_regex("(a+)+(a|aa)*b").search("a" * 20000)
    assert time.process_time() - begun < ENDLESS
