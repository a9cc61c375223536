# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pictures of the report page: sample models in a real Chromium, wide and narrow, light and dark.

Run by hand, with the folder that the pictures go to: `python tests/report/shoot.py tests/output/report`; with
`--page build/report.html` the page of a build is shown instead. Printed are the bytes of each page, the seconds to make
it, and those until it answers to a person.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests/unit/plugins/module_utils/core/report")]
sys.dont_write_bytecode = True

from ansible_collections.modelplane.fleet.tests.report import browser  # noqa: E402  found beside this file


def pages(built: list[Path]) -> dict[str, Callable[[], str]]:
    """The pages to show, by name: those of builds, or of the sample models when there are none."""
    if built:
        return {f"{page.resolve().parent.name}-{page.stem}": partial(page.read_text, "utf-8") for page in built}
    from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report import sample_models
    from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.report.typed_models import html_of

    sizes = {"fleet-0": sample_models.empty, "fleet-3": sample_models.small, "fleet-300": sample_models.large}
    sizes["fleet-1000"] = partial(sample_models.large, 1_000, 3_000)
    return {name: partial(html_of, model()) for name, model in sizes.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", type=Path, action="append", default=[], help="the report.html of a build")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with browser.Browser() as chromium:
        for name, render in pages(arguments.page).items():
            before = time.perf_counter()
            html = render()
            seconds = time.perf_counter() - before
            page = folder / f"{name}.html"
            page.write_text(html, encoding="utf-8")
            print(f"{name}: {len(html.encode()):,} bytes, made in {seconds:.2f} s")
            for width in (1280, 390):
                for scheme in ("light", "dark"):
                    shown = chromium.show(page, width, dark=scheme == "dark")
                    picture = folder / f"{name}-{width}-{scheme}.png"
                    chromium.picture(picture)
                    print(f"  {picture}: {shown:.2f} s")


if __name__ == "__main__":
    main()
