# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""HTML report of a plan: one HTML file that requires no network, no server, and no script for reading.

The templates, the style, and the script are in `files/`. `page.html.j2` has the frame of the page. Each section is a
template with the ID of the section as its name, for example `attention.html.j2`.
"""

from __future__ import annotations

from .links import link_index
from .rendering import file_texts, render
from .views import Report

__all__ = ["html"]

# Up to this number of clusters or services, the report shows all details. In larger fleets, each row opens on demand.
_FEW = 12


def html(report: Report) -> str:
    """Return the report as HTML. Equal reports result in equal bytes.

    The Content-Security-Policy allows only the style and the script of the page, by their hashes.
    """
    files = file_texts()
    return render(
        "page.html.j2",
        report=report,
        links=link_index(report),
        style=files["report.css"],
        script=files["report.js"],
        few=_FEW,
    )
