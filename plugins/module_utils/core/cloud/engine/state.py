# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""State of an object: whether it can be used, is on its way, or has failed."""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.diff import at
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.kinds import Actual, Kind, Phase


@dataclass(frozen=True)
class State:
    """`word`: what the API says, empty for a kind without states. `causes`: why it is degraded or failed, as codes and
    messages. `remediation`: what to do about them."""

    word: str = ""
    phase: Phase = "ready"
    causes: tuple[tuple[str, str], ...] = ()
    remediation: str = ""

    @property
    def usable(self) -> bool:
        """Return true if there is nothing to wait for: it is at rest, well or not."""
        return self.phase in ("ready", "degraded", "failed")

    @property
    def ending(self) -> bool:
        """Return true if it has to be created again: it is being deleted, or never became usable."""
        return self.phase in ("failed", "deleting")

    @property
    def message(self) -> str:
        """The causes in one line; empty without any."""
        return "; ".join(
            ": ".join(filter(None, (code, text.rstrip(". ")))) for code, text in self.causes if code or text
        )


def state(kind: Kind, actual: Actual) -> State:
    """Return the state of an object by the table of kinds, without causes."""
    word = str(at(actual, kind.status) or "") if kind.status else ""
    return State(word, kind.phases.get(word, "changing")) if word else State()
