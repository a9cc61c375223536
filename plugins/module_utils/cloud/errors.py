# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Errors of all clouds. No text holds a secret."""

from __future__ import annotations

import re
from typing import ClassVar

from ..core.secrets import masked

_LONGEST = 1000


class CloudError(Exception):
    """A cloud refuses something, cannot be reached, or something there failed.

    `code`: the error code of the API, the class of the library's exception where no answer came, or empty. `message`:
    what was said, without code and hint. `str()` is all of it in one text. `too_early`: what the call waits for that
    was created a moment ago and is not known everywhere yet ("its role to be known everywhere"), empty when it failed
    for another reason; such a call is sent again for two minutes.
    """

    cloud: ClassVar[str] = "the cloud"

    def __init__(self, what: str, message: str = "", *, code: str = "", hint: str = "", passing: bool = False) -> None:
        fragments = (what.strip(), code, message.strip())
        text = ": ".join(fragment for fragment in fragments if fragment).rstrip(". ")
        super().__init__(f"{text}. {hint}" if hint else text)
        self.code = code
        self.message = message.strip()
        self.too_early = ""
        self._passing = passing

    @property
    def passing(self) -> bool:
        """Return whether the call may succeed the next time: the cloud was busy or could not be reached."""
        return self._passing

    @property
    def absent(self) -> bool:
        """Return whether there is no such object."""
        return False

    @property
    def exists(self) -> bool:
        """Return whether there is such an object already."""
        return False

    @property
    def outdated(self) -> bool:
        """Return whether something was changed since it was read: it is read and compared again."""
        return False

    @property
    def busy(self) -> bool:
        """Return whether another change has to end first, or something still uses the object: the call is sent again
        until `wait_timeout` is over."""
        return False

    @property
    def blocker(self) -> str:
        """Name what keeps a busy object busy, for messages."""
        return "another change"


def shown(message: str, for_programs: re.Pattern[str] | None = None) -> str:
    """Return the message of an API without secrets and machine-readable parts, on one short line."""
    text = " ".join(masked(for_programs.sub("", message) if for_programs else message).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
