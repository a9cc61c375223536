# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Check arguments of other programs.

`kubernetes.core.helm` joins its arguments to one text, which `AnsibleModule.run_command` splits again as a shell would,
and in which it replaces variables and home directories. An argument is therefore a plain word or refused: what has
white space in it would become several arguments, and what has a dash in front an option.
"""

from __future__ import annotations

import re

PLAIN_WORD = (
    "must be one word without white space, quotes, control characters, '\\' and '$', and not begin with '-' or '~'"
)
"""The end of an error message about a value that is_plain_word refuses."""

_PLAIN_WORD = re.compile(r"(?![-~])[^\s'\"\\$\x00-\x1f\x7f-\x9f]+")


def is_plain_word(text: str) -> bool:
    """Return True for a text that shell-like splitting and expansion leave as one unchanged argument."""
    return bool(_PLAIN_WORD.fullmatch(text))
