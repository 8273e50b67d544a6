"""Takes the pictures of README and docs: the report of the quickstart, and the page of a run while it runs.

    python contrib/pictures.py [FOLDER]

Needs the extras `view` and `browser`, and a Chromium; writes docs/pictures/*.png, or the same files to FOLDER. The
browser's tests take them, too, so that a picture that cannot be taken is noticed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
LIMIT = 200_000  # bytes of a picture


def start(*words: str, **settings: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORKBENCH_TRUST": str(ROOT)}
    return subprocess.Popen([sys.executable, "-m", "workbench", *words], text=True, env=environment, **settings)


def shoot(browser: Browser, address: str, path: Path, *, wait: str) -> None:
    """A picture of the first screen of a page, once what `wait` selects is there."""
    page = browser.new_page(viewport={"width": 1000, "height": 760})
    page.goto(address)
    page.locator(wait).first.wait_for(timeout=120_000)
    page.screenshot(path=path)
    page.close()
    if path.stat().st_size > LIMIT:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes, more than {LIMIT:,}")


def main(pictures: Path = PICTURES) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium is installed")
    pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        database = str(Path(folder) / "run.db")
        quickstart = str(ROOT / "workflows" / "quickstart.yaml")
        run = start("optimize", quickstart, "--db", database, cwd=folder, stdout=subprocess.DEVNULL)
        while not Path(database).exists() and run.poll() is None:
            time.sleep(0.1)
        view = start("view", "--db", database, "--port", "0", cwd=folder, stderr=subprocess.PIPE)
        try:
            assert view.stderr is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", view.stderr.readline())
            if found is None:
                raise SystemExit("the page did not start")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page()
            page.goto(found[0])
            page.get_by_role("link", name="quickstart").first.click()
            shoot(browser, page.url, pictures / "live.png", wait="[data-live] tr:nth-child(6)")
            run.wait(300)
            report = Path(folder) / "report.html"
            start("report", "last", "--db", database, "--out", str(report), cwd=folder).wait(120)
            shoot(browser, report.as_uri(), pictures / "report.png", wait="h1")
            browser.close()
        finally:
            for process in (run, view):
                process.terminate()
                process.wait(30)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
