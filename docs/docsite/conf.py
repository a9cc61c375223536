# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Settings of Sphinx for the site. `build.py` assembles the pages and runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes

ROOT = Path(__file__).resolve().parents[2]

project = "modelplane.fleet"
copyright = "modelplane.fleet authors, Apache License 2.0"  # noqa: A001
version = release = re.search(r"^version: (\S+)$", (ROOT / "galaxy.yml").read_text(), re.MULTILINE)[1]  # type: ignore[index]
language = "en"
# Dashes only: typographic quotes would be other characters than those to type.
smartquotes_action = "D"

extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
# Indented blocks are output of programs as often as code.
highlight_language = "text"
pygments_style = "ansible"
pygments_dark_style = "github-dark"
myst_heading_anchors = 5
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = f"modelplane.fleet {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
# The colours of plugin pages are those of site.css, which follow the theme.
antsibull_ext_color_scheme = "none"

ANSIBLE = "https://docs.ansible.com/projects/ansible/latest/"
EXTERNAL = {
    "callback_plugins": "plugins/callback.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
}
"""Labels of the documentation of Ansible that plugin pages refer to: the site is built without a network."""
_PLUGIN = re.compile(r"ansible_collections\.(?P<namespace>\w+)\.(?P<name>\w+)\.(?P<plugin>\w+)")


def resolve(_app: Any, _environment: Any, node: Any, content: Any) -> Any:
    """Return the link for a label of the documentation of Ansible, which has the plugins of other collections too."""
    label = node.get("reftarget", "")
    page, plugin = EXTERNAL.get(label), _PLUGIN.fullmatch(label)
    if plugin and (plugin["namespace"], plugin["name"]) != ("modelplane", "fleet"):
        page = f"collections/{plugin['namespace']}/{plugin['name']}/{plugin['plugin']}.html"
    return nodes.reference("", "", content, internal=False, refuri=f"{ANSIBLE}{page}") if page else None


def setup(app: Any) -> None:
    app.connect("missing-reference", resolve)
