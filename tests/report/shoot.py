# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pictures of the page of a plan: sample models, each rendered by Chromium, wide and narrow, light and dark.

Run by hand, with the folder that the pictures go to: `python tests/report/shoot.py tests/output/report`; with
`--page build/report.html` the page of a build is rendered instead. Pictures show
the page down to 6,000 px. Printed is what was measured: bytes of the page, seconds to render it, milliseconds until it
is loaded and laid out, and what its script did when asked.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests/unit/plugins/module_utils/core/report")]
sys.dont_write_bytecode = True

WIDTHS = (1280, 390)
# Pixels of height of a piece of a page, and how many pieces there are.
TALL = 1500
PIECES = 4
QUIET = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
QUIET += " --disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1"
# Asked of a copy of the page that is allowed to answer: the answer becomes a title. `wide` is what sticks out of the
# window; then the filter, the order and a link are used as a person would.
PROBE = """
addEventListener('load', () => setTimeout(async () => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (id) => document.getElementById(id);
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const answer = {ms: Math.round(performance.now()), height: document.documentElement.scrollHeight};
  answer.wide = all('body *').filter((node) => !node.closest('.skip') && node.getBoundingClientRect().right
    > innerWidth + 1).slice(0, 5).map((node) => node.outerHTML.slice(0, 80));
  const shown = () => all('#cards > details').filter((node) => !node.hidden).length;
  answer.cards = shown();
  const box = one('filter');
  box.value = shown() > 12 ? 'team-03 prod-02' : 'ml-team us-central';
  box.dispatchEvent(new Event('input'));
  await wait(300);
  answer.message = one('message').textContent;
  answer.filtered = shown();
  one('sort').value = 'fill';
  one('sort').dispatchEvent(new Event('change'));
  box.value = '';
  box.dispatchEvent(new Event('input'));
  await wait(300);
  answer.fullest = all('#cards > details').slice(0, 3).map((node) => node.dataset.fill);
  const last = all('#cards > details > div').pop();
  if (last) {
    last.parentNode.open = false;
    location.hash = last.id;
    await wait(300);
    answer.revealed = last.parentNode.open && !last.parentNode.hidden && document.activeElement === last;
  }
  parent.postMessage(JSON.stringify(answer), '*');
}, 50));
"""


def chromium(*arguments: str) -> str:
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", *QUIET.split(), f"--user-data-dir={profile}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def sheets(page: Path, width: int) -> list[tuple[Path, int]]:
    """Pages that show the page at a width, piece by piece from its top, and their own widths.

    The pieces stand side by side where they are narrow. Frames are what makes a width below 500 px possible, which a
    headless window cannot have.
    """
    across = max(1, 1600 // width)
    found = []
    for number in range(0, PIECES, across):
        clips = "".join(
            f"<div style='width:{width}px;height:{TALL}px;overflow:hidden;float:left'>"
            f"<iframe src='{page.name}' style='border:0;width:{width}px;height:{PIECES * TALL}px;"
            f"margin-top:-{piece * TALL}px'></iframe></div>"
            for piece in range(number, number + across)
        )
        sheet = page.with_name(f"{page.stem}-{width}-{number // across}.sheet.html")
        sheet.write_text(f"<style>body{{margin:0}}</style>{clips}", encoding="utf-8")
        found.append((sheet, across * width))
    return found


def measure(page: Path, width: int) -> dict[str, Any]:
    """Return what the page says of itself at a width."""
    asked = page.with_name(f"{page.stem}-asked.html")
    source = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    asked.write_text(source.replace("</head>", f"<script>{PROBE}</script></head>"), encoding="utf-8")
    frame = page.with_name(f"{page.stem}-frame.html")
    frame.write_text(
        f"<title>?</title><script>onmessage = (event) => {{ document.title = event.data; }}</script>"
        f"<iframe src='{asked.name}' style='width:{width}px;height:900px;border:0'></iframe>",
        encoding="utf-8",
    )
    dom = chromium("--window-size=1400,900", "--virtual-time-budget=9000", "--dump-dom", frame.as_uri())
    found = re.search(r"<title>(\{.*?\})</title>", dom)
    return json.loads(found[1]) if found else {}


def pages(built: list[Path]) -> dict[str, Callable[[], str]]:
    """The pages to render, by name: those of builds, or of the sample models when there are none."""
    if built:
        return {f"{page.resolve().parent.name}-{page.stem}": partial(page.read_text, "utf-8") for page in built}
    import sample_models
    from ansible_collections.modelplane.fleet.plugins.module_utils.core import report

    samples = {"fleet-3": sample_models.small, "fleet-300": sample_models.large, "fleet-0": sample_models.empty}
    return {name: partial(report.html, model()) for name, model in samples.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="part of a sample's name")
    parser.add_argument("--page", type=Path, action="append", default=[], help="the report.html of a build")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    for name, render in pages(arguments.page).items():
        if arguments.only not in name:
            continue
        before = time.perf_counter()
        html = render()
        seconds = time.perf_counter() - before
        page = folder / f"{name}.html"
        page.write_text(html, encoding="utf-8")
        print(f"{name}: {len(html.encode()):,} bytes, rendered in {seconds:.2f} s")
        for width in WIDTHS:
            print(f"  {width} px: {measure(page, width)}")
            for scheme in ("light", "dark"):
                # 0 is dark and 1 light, in Chromium's settings of blink.
                setting = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
                for number, (sheet, wide) in enumerate(sheets(page, width)):
                    picture = folder / f"{name}-{width}-{scheme}-{number}.png"
                    size = f"--window-size={wide},{TALL}"
                    chromium(setting, size, f"--screenshot={picture}", "--virtual-time-budget=3000", sheet.as_uri())
                    print(f"  {picture}")


if __name__ == "__main__":
    main()
