# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Check arguments of other programs.

`kubernetes.core.helm` joins its arguments to one text. `AnsibleModule.run_command` splits this text like a shell and
expands variables and home directories in it. An argument must therefore be a plain word. Text with white space would
become several arguments, and text with a leading dash would become an option.
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
