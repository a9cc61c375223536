# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that show a document. The argument spec is in `module_utils/arguments/output.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that show a document."""

    DOCUMENTATION = r"""
options:
  output:
    description:
      - The format of the result. V(table) is text for a terminal. V(yaml) is the document as text. V(json) is the
        document as text and as a value.
    type: str
    choices: [table, json, yaml]
    default: table
  query:
    description:
      - A JMESPath expression that selects a part of the document. With V(table), the selected part is shown as a value.
      - Requires the Python package C(jmespath).
    type: str
"""
