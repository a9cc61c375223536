# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Errors of all clouds. Error texts never contain a secret."""

from __future__ import annotations

import re
from typing import ClassVar

from ..core.secrets import masked

_LONGEST = 1000


class CloudError(Exception):
    """A cloud rejects a request, cannot be reached, or reports a failure.

    `code`: the error code of the API, the class of the library's exception if no response was received, or empty.
    `message`: the message of the error, without code and hint. `str()` is the full text. `too_early`: the new
    dependency that the cloud does not know everywhere yet ("its role to be known everywhere"), empty for other causes;
    such a call is sent again for two minutes.
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
        """Return True if the call might succeed the next time: the cloud was busy or could not be reached."""
        return self._passing

    @property
    def absent(self) -> bool:
        """Return True if the object does not exist."""
        return False

    @property
    def exists(self) -> bool:
        """Return True if the object already exists."""
        return False

    @property
    def outdated(self) -> bool:
        """Return True if an object was changed after it was read: it is read and compared again."""
        return False

    @property
    def busy(self) -> bool:
        """Return True if another change must finish first, or if the object is still in use.

        The call is sent again until `wait_timeout` ends.
        """
        return False

    @property
    def blocker(self) -> str:
        """The reason why a busy object is busy, for messages."""
        return "another change"


def shown(message: str, for_programs: re.Pattern[str] | None = None) -> str:
    """Return the message of an API without secrets and machine-readable parts, on one short line."""
    text = " ".join(masked(for_programs.sub("", message) if for_programs else message).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
