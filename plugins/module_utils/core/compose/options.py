# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What the caller may choose about the objects of a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants


@dataclass(frozen=True)
class Options:
    """Choices of the fleet, or of one deployment.

    `picker_config` replaces the composed EndpointPickerConfig as a whole, given in its parsed form.
    """

    picker_image: str = constants.PICKER_IMAGE
    picker_replicas: int = 2
    picker_config: Mapping[str, Any] | None = None
    sidecar_image: str = constants.SIDECAR_IMAGE
