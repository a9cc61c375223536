# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Options of modules that show a document; spec: `module_utils/arguments/output.py`."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of modules that show a document to people, or to programs."""

    DOCUMENTATION = r"""
options:
  output:
    description:
      - How the result is shown. V(table) is text for a terminal, V(yaml) the document as text, V(json) the document as
        text and as a value.
    type: str
    choices: [table, json, yaml]
    default: table
  query:
    description:
      - A JMESPath expression that selects from the document. With a table, what it selects is shown as a value.
      - It needs the Python package C(jmespath).
    type: str
"""
