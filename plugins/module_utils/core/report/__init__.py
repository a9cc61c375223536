# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The HTML report of a plan: one HTML file that needs no network and no server, and no script to be read.

The templates, the style and the script are in `files/`. `page.html.j2` has the frame of the page. Each section is a
template with the ID of the section as its name, for example `attention.html.j2`.
"""

from __future__ import annotations

from .links import link_index
from .rendering import file_text, render
from .views import Report

__all__ = ["html"]


def html(report: Report) -> str:
    """Return the report as HTML. Equal reports give equal bytes.

    The Content-Security-Policy allows only the style and the script of the page, by their hashes.
    """
    return render(
        "page.html.j2",
        report=report,
        links=link_index(report),
        style=file_text("report.css"),
        script=file_text("report.js"),
        first_sections=_FIRST_SECTIONS,
        sections=[(id_, title) for id_, title, has_content in _sections(report) if has_content],
    )


# On wide screens, these sections are next to each other.
_FIRST_SECTIONS = [("attention", "What is wrong"), ("picture", "Services, clusters and pools")]


def _sections(report: Report) -> list[tuple[str, str, bool]]:
    """Return the ID and the title of the other sections, and whether the section has content."""
    return [
        ("distribution", "Order and spread of replicas", bool(report.distributions)),
        ("what-if", "What if", report.what_if is not None),
        ("losses", "Losses of clusters", bool(report.survival.needs)),
        ("cost", "What it costs", report.cost is not None),
        ("memory", "Models and memory", bool(report.memory)),
        ("budgets", "Use of budgets", any(policy.budgets for policy in report.policies)),
        ("changes", "What changes", True),
        ("fleet", "Clusters in detail", True),
        ("caches", "Model caches", True),
    ]
