# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Messages about objects of other owners that prevent the deletion of the network of a cluster."""

from __future__ import annotations

_DELETE = "Delete it when it is no longer needed"


def left_alone(title: str, why: str, network: str = "the network", hint: str = _DELETE) -> str:
    """Return the reason why an object is kept, with a fix. `network`: its network in the message; it is kept, too."""
    return f"{title} {why}, so it stays, and so does {network}. {hint}"
