# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports pydantic.

Ansible imports plugins to document and check them on machines without pydantic. On these machines the names below are
stand-ins that let classes be *defined*. `PYDANTIC_IMPORT_ERROR` then contains the traceback. Every module and filter
checks it first and reports the missing package.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, ClassVar

PYDANTIC_IMPORT_ERROR: str | None = None

if TYPE_CHECKING:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
    from pydantic.fields import FieldInfo
else:
    try:
        from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
        from pydantic.fields import FieldInfo
    except ImportError:
        PYDANTIC_IMPORT_ERROR = traceback.format_exc()

        class BaseModel:
            """Stand-in: can be subclassed, and has no fields."""

            model_fields: ClassVar[dict[str, Any]] = {}

        class FieldInfo:
            """Stand-in for the description of a field."""

        class ValidationError(ValueError):
            """Stand-in: never raised."""

        def ConfigDict(**kwargs: Any) -> dict[str, Any]:  # noqa: N802
            return kwargs

        def Field(*_args: Any, **_kwargs: Any) -> Any:  # noqa: N802
            return None

        def model_validator(**_kwargs: Any) -> Any:
            return lambda function: function


__all__ = [
    "PYDANTIC_IMPORT_ERROR",
    "BaseModel",
    "ConfigDict",
    "Field",
    "FieldInfo",
    "ValidationError",
    "model_validator",
]
