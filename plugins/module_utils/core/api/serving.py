# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Routing of requests to the engines of a replica: common fields of ModelDeployments and ModelReplicas."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from ..._pydantic import Field
from .base import Known, Model, Rule, Violation, allowed_if, has
from .engine import Mode
from .pod_template import Resources

PICKER_CONFIG_KIND = "EndpointPickerConfig"


def _config_kind(picker: Any) -> list[Violation]:
    kind = (picker.config or {}).get("kind")
    return [] if kind in (None, PICKER_CONFIG_KIND) else [Violation(("config", "kind"), value=kind)]


class Picker(Model):
    """Settings of the endpoint picker (EPP), which selects an engine pod for each request."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-24", "MR-18"),
            message=f"the kind of the endpoint picker configuration must be {PICKER_CONFIG_KIND}",
            cel=f"!has(self.config) || !has(self.config.kind) || self.config.kind == '{PICKER_CONFIG_KIND}'",
            check=_config_kind,
            hint=f"Write {PICKER_CONFIG_KIND}, or leave kind out",
            schema={"properties": {"config": {"properties": {"kind": {"enum": [PICKER_CONFIG_KIND]}}}}},
        ),
    )

    image: str | None = Field(
        default=None, min_length=1, description="Image of the endpoint picker. Defaults to the image of the fleet."
    )
    args: list[str] | None = Field(
        default=None,
        description="Flags of the endpoint picker, in addition to the composed flags. A flag replaces the composed "
        "flag with the same name.",
    )
    config: Annotated[dict[str, Any], Known("kind")] | None = Field(
        default=None,
        description="EndpointPickerConfig of the endpoint picker. Replaces the composed configuration completely.",
    )
    resources: Resources | None = Field(
        default=None,
        description="CPU and memory of the endpoint picker. A resource without a request or limit has the composed "
        "values.",
    )


class Sidecar(Model):
    """Settings of the proxy in front of the Decode engine. It sends prompts to the Prefill engine first."""

    image: str | None = Field(
        default=None, min_length=1, description="Image of the proxy. Defaults to the image of the fleet."
    )
    args: list[str] | None = Field(
        default=None,
        description="Flags of the proxy, in addition to the composed flags. A flag replaces the composed flag with the "
        "same name.",
    )


class ServingBase(Model):
    """Routing of requests to the engines."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-25", "MR-19"),
            message="sidecar is allowed only when mode is PrefillDecode",
            cel="!has(self.sidecar) || self.mode == 'PrefillDecode'",
            check=lambda serving: serving.sidecar is None or serving.mode == "PrefillDecode",
            hint="Set mode: PrefillDecode or remove sidecar",
            schema=allowed_if(has("mode", "PrefillDecode"), "sidecar"),
        ),
    )

    mode: Mode = Field(default="Unified", description="Serving mode, from the ModelDeployment. Defaults to Unified.")
    picker: Picker | None = Field(
        default=None, description="Settings of the endpoint picker. If unset, the settings of the fleet apply."
    )
    sidecar: Sidecar | None = Field(
        default=None,
        description="Settings of the proxy in front of the Decode engine. If unset, the settings of the fleet apply. "
        "Only allowed for mode PrefillDecode.",
    )
