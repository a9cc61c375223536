# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Routing of requests to the engines of a replica: what a ModelDeployment asks for and a ModelReplica repeats."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from ..._pydantic import Field
from .base import Known, Model, Rule, Violation, allowed_if, has
from .engine import Mode
from .pod_template import Resources

PICKER_CONFIG_KIND = "EndpointPickerConfig"


def _config_kind(picker: Any) -> list[Violation]:
    written = (picker.config or {}).get("kind")
    return [] if written in (None, PICKER_CONFIG_KIND) else [Violation(("config", "kind"), value=written)]


class Picker(Model):
    """The endpoint picker, which selects the engine pod that takes a request."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MD-24", "MR-18"),
            message=f"the kind of a picker's configuration is {PICKER_CONFIG_KIND}",
            cel=f"!has(self.config) || !has(self.config.kind) || self.config.kind == '{PICKER_CONFIG_KIND}'",
            check=_config_kind,
            hint=f"Write {PICKER_CONFIG_KIND}, or leave kind out",
            schema={"properties": {"config": {"properties": {"kind": {"enum": [PICKER_CONFIG_KIND]}}}}},
        ),
    )

    image: str | None = Field(default=None, min_length=1, description="Image in place of the fleet's.")
    args: list[str] | None = Field(
        default=None, description="Flags; one that is composed too takes its place, the others are added."
    )
    config: Annotated[dict[str, Any], Known("kind")] | None = Field(
        default=None, description="The picker's configuration, in place of the composed one as a whole."
    )
    resources: Resources | None = Field(
        default=None, description="CPU and memory; what has neither a request nor a limit here is composed."
    )


class Sidecar(Model):
    """The proxy in front of the Decode engine: it has prompts read by the Prefill engine."""

    image: str | None = Field(default=None, min_length=1, description="Image in place of the fleet's.")
    args: list[str] | None = Field(
        default=None, description="Flags; one that is composed too takes its place, the others are added."
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

    mode: Mode = Field(default="Unified", description="As in the ModelDeployment.")
    picker: Picker | None = Field(default=None, description="Settings of the endpoint picker; absent is the fleet's.")
    sidecar: Sidecar | None = Field(
        default=None, description="Settings of the proxy in front of the Decode engine; absent is the fleet's."
    )
