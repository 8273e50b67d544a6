"""`workbench view` in a real browser, headless Chromium: followed live, read, compared, tagged, without barriers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from workbench.errors import StoreError
from workbench.store import Orders, ReadOnlyStore, RunRecord

sync_api = pytest.importorskip("playwright.sync_api")

ROOT = Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

#: Its search takes some ten seconds, so that there is something to follow.
WORKFLOW = f"""
name: tickets-report
seed: 4  # one whose winner changes the instructions, and gets some rows wrong that the baseline gets right
lm: {{model: bundled/nano, concurrency: 1}}
roles: {{proposer: templates/instructions}}
data: {{file: {ROOT}/workflows/data/tickets.jsonl, split: {{train: 60, val: 60, test: 200}}}}
metric: exact_match(label)
nodes:
  sort:
    predict: "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']"
optimize: [{{rewrite: {{rounds: 4}}}}, {{bootstrap: {{max_demos: 8, samples: 12}}}}]
budget: {{calls: 4000}}
"""


def workbench(*words: Any, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "workbench", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, **settings
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("browser")
    (made / "workflow.yaml").write_text(WORKFLOW)
    return made


@pytest.fixture(scope="module")
def optimizing(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A real run of `bundled/nano`, which begins now."""
    process = workbench("optimize", "workflow.yaml", "--db", "run.db", cwd=folder)
    wait_for(lambda: (folder / "run.db").exists() and names(folder), "the run to begin")
    yield process
    process.kill()
    process.communicate()


def names(folder: Path) -> list[str]:
    try:
        with closing(ReadOnlyStore(folder / "run.db", check=False)) as store:
            return [row["run"] for row in store.list_runs()]
    except StoreError:  # it is being made
        return []


def wait_for(found: Any, what: str, seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if got := found():
            return got
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}")


@pytest.fixture(scope="module")
def address(folder: Path, optimizing: Any) -> Iterator[str]:
    process = workbench("view", "--db", "run.db", "--port", "0", "--start", cwd=folder)
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None, line + process.stderr.read()
    yield found[0]
    process.terminate()
    told = process.communicate(timeout=20)[1]
    assert process.returncode == 0, "it does not end when it is asked to"
    assert told.strip() == "Stopped.", "something went wrong on the way"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page whose console must stay empty, and which asks no other server."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, accept_downloads=True)
    made, wrong = context.new_page(), list[str]()
    made.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("request", lambda asked: None if "//127.0.0.1:" in asked.url else wrong.append(asked.url))
    made.set_default_timeout(60_000)
    yield made
    context.close()
    assert not wrong


def test_a_run_is_steered_and_followed_to_its_end(page: Any, address: str, folder: Path, optimizing: Any) -> None:
    """It is paused, looked at, and goes on. Nobody loads the page anew: it grows, and becomes the report."""
    page.goto(address)
    page.get_by_role("link", name="tickets-report").first.click()
    assert "running" in page.locator("h1").inner_text()
    seen = set[str]()

    def figures() -> bool:
        part = page.locator("[data-live] .ceilings")
        if part.count():
            seen.add(part.first.inner_text())
        return len(seen) >= 3

    wait_for(figures, "the calls to be counted on")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("pause: done").wait_for()
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("heading", name=re.compile("The gain is")).wait_for(timeout=240_000)
    assert page.get_by_text("Changes", exact=True).count() == 1 and "running" not in page.content()
    assert optimizing.wait(60) == 0
    store = ReadOnlyStore(folder / "run.db")
    orders = Orders(store, store.find_run("last")["id"]).read_all()
    store.close()
    assert [(order["kind"], order["outcome"]) for order in orders] == [("pause", "done"), ("continue", "done")]


def finished(page: Any, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="tickets-report").last.click()  # the first run, not its branch
    page.get_by_role("heading", name=re.compile("The gain is")).wait_for(timeout=240_000)


def test_a_newcomer_finds_what_matters_from_the_page_alone(page: Any, address: str, folder: Path) -> None:
    """Which prompt or examples won, on which rows, what a call cost, how to deploy it: by reading alone."""
    finished(page, address)
    store = ReadOnlyStore(folder / "run.db")
    row = store.find_run("last", kinds=("optimize",))
    report = json.loads(row["report"])
    node = json.loads(
        store.row("select tree from candidates where hash = ?", report["best"]["workflow"])["tree"]  # type: ignore[index]
    )["nodes"]["sort"]
    prompt = node.get("instructions") or node["demos"][0]["text"]
    lost = {
        one["example"]
        for one in store.rows(
            "select b.example from results a join results b on a.example = b.example where a.score > b.score and "
            "a.evaluation_id = (select id from evaluations where candidate = ? and split = 'test') and "
            "b.evaluation_id = (select id from evaluations where candidate = ? and split = 'test')",
            report["baseline"]["workflow"],
            report["best"]["workflow"],
        )
    }
    handles = RunRecord(store, row["id"]).read_handles()
    store.close()
    lost = {handles.get(one, one) for one in lost}
    assert lost, "or the walk shows nothing"
    page.locator("#changes").get_by_role("link", name=re.compile("^candidate")).click()
    assert "winner" in page.locator("h1").inner_text()
    assert " ".join(prompt.split()) in " ".join(page.locator("main").inner_text().split())
    page.go_back()
    page.get_by_role("link", name=re.compile(r"^\d+ lost$")).click()
    shown = {link.inner_text() for link in page.locator("td.main a").all()}
    assert shown == lost
    page.locator("td.main a").first.click()
    assert "tokens in" in page.locator("ol.steps").inner_text() and "answer" in page.locator("ol.steps").inner_text()
    page.get_by_role("link", name="the call").first.click()
    assert re.search(r"cost\s+\$[\d.e-]+, [\d,]+ tokens in, [\d,]+ out", page.locator("main").inner_text())
    finished(page, address)
    task = page.locator("#bill tr", has=page.get_by_role("rowheader", name="task", exact=True)).inner_text()
    assert f"{report['spent']['by_role']['task']['calls']:,}" in task and "$" in task
    deploy = page.locator("section", has=page.get_by_role("heading", name="To deploy it")).inner_text()
    assert report["workflow"] in deploy and "workbench serve" in deploy and "--format bundle" in deploy


def test_a_branch_is_added_and_started(page: Any, address: str, folder: Path) -> None:
    finished(page, address)
    page.locator("#changes").get_by_role("link", name=re.compile("^candidate")).click()
    page.get_by_label("Calls (empty: unchanged)").fill("700")
    page.get_by_role("button", name="Add the run").click()
    page.get_by_text("Nothing has been called yet").wait_for()
    branch = page.url.rpartition("/")[2]
    page.get_by_role("button", name="Start").click()
    page.get_by_role("heading", name=re.compile("The gain is|Nothing beat")).wait_for(timeout=240_000)
    store = ReadOnlyStore(folder / "run.db")
    row = store.find_run(branch)
    store.close()
    assert row["status"] == "finished" and json.loads(row["report"])["spent"]["calls"] <= 700


def test_runs_are_compared_tagged_and_exported(page: Any, address: str, folder: Path) -> None:
    finished(page, address)
    page.get_by_role("navigation", name="Of this run").get_by_role("link", name="Compare").click()
    assert re.search(r"The second is better|No difference is shown", page.locator("h2").first.inner_text())
    finished(page, address)
    page.get_by_label("Tags, separated by spaces").fill("shown to-all")
    page.get_by_role("textbox", name="Note").fill("<b>good</b>")
    page.get_by_role("button", name="Save").click()
    assert page.get_by_label("Tags, separated by spaces").input_value() == "shown to-all"
    page.goto(f"{address}/?tag=to-all")
    assert "<b>good</b>" in page.locator("table").inner_text() and page.locator("table b").count() == 0
    finished(page, address)
    with page.expect_download() as kept:
        page.get_by_role("link", name="html", exact=True).click()
    assert "The gain is" in Path(kept.value.path()).read_text()


def test_a_list_is_sorted_by_a_column(page: Any, address: str) -> None:
    finished(page, address)
    run = page.url.rstrip("/").split("/")[-1]
    page.goto(f"{address}/grid?side={run}:baseline&side={run}:winner&only=scores")
    column = page.locator("tbody td:nth-child(3)")
    scores = [float(cell.get_attribute("data-sort")) for cell in column.all()]
    assert len({*scores}) > 1
    for state, expected in (("descending", sorted(scores, reverse=True)), ("ascending", sorted(scores))):
        page.get_by_role("columnheader").nth(2).get_by_role("button").press("Enter")
        assert [float(cell.get_attribute("data-sort")) for cell in column.all()] == expected
        assert page.get_by_role("columnheader").nth(2).get_attribute("aria-sort") == state
    page.goto(address)
    assert page.get_by_role("columnheader").get_by_role("button").count() > 2


def test_answers_are_labelled_by_key_and_by_hand(page: Any, address: str, folder: Path) -> None:
    finished(page, address)
    page.get_by_role("navigation", name="Of this run").get_by_role("link", name="Label").click()
    page.get_by_label("Your name").fill("ann")
    page.get_by_role("button", name="Begin").click()
    page.get_by_text("answers labelled by ann").wait_for()
    for number, key in enumerate(("y", "n", "s"), 1):
        page.wait_for_load_state()  # before it, the script may not be there yet to take a key
        page.keyboard.press(key)
        page.locator(f"progress[value='{number}']").wait_for()
    page.wait_for_load_state()
    press = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
    page.evaluate(f"['y', 'n'].forEach((key) => {press})")
    page.locator("progress[value='4']").wait_for()
    page.get_by_text("A score between, a better answer, a comment").click()
    page.get_by_label("Comment").fill("yes, not sure")
    page.get_by_label("Score, 0 to 1").fill("0.5")
    page.get_by_role("button", name="Save").click()
    page.locator("progress[value='5']").wait_for()
    written = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    scores = [one.get("score") for one in written]
    assert scores == [1.0, 0.0, None, 1.0, 0.5], "a key too many and typing y in a field label nothing"
    assert written[-1]["comment"] == "yes, not sure"


def test_keys_lead_through_a_list(page: Any, address: str) -> None:
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("tickets")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("text=tickets"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/runs/"))


def test_a_report_of_two_thousand_rows_opens_at_once(browser: Any, tmp_path: Path) -> None:
    from workbench_view.facts import read_facts
    from workbench_view.page import write_page

    from .conftest import improve

    improve(tmp_path, tmp_path / "run.db", rows=(12, 40, 2000))
    store = ReadOnlyStore(tmp_path / "run.db")
    (tmp_path / "report.html").write_text(write_page(read_facts(store, "last")))
    store.close()
    page = browser.new_page()
    took: list[float] = []
    for _ in range(3):
        begun = time.monotonic()
        page.goto((tmp_path / "report.html").as_uri())
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        took.append(time.monotonic() - begun)
    page.close()
    assert min(took) < 10, took


@pytest.mark.long
def test_the_pictures_of_the_docs_can_be_taken(tmp_path: Path) -> None:
    """The same command takes those of `docs/pictures/`."""
    done = subprocess.run(
        [sys.executable, ROOT / "contrib" / "pictures.py", tmp_path], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert {path.name for path in tmp_path.glob("*.png")} == {path.name for path in (ROOT / "docs/pictures").iterdir()}


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, which npm fetches; it is no part of the project."""
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("no npm, which fetches axe-core")
    done = subprocess.run(
        ["npm", "pack", "axe-core@4", "--silent"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    packed = list(folder.glob("axe-core-*.tgz"))
    if done.returncode or not packed:
        pytest.skip(f"npm cannot fetch axe-core: {done.stderr[-200:]}")
    with tarfile.open(packed[0]) as archive:
        found = archive.extractfile("package/axe.min.js")
        assert found is not None
        return found.read().decode()


@pytest.mark.parametrize(
    ("scheme", "width"), [pytest.param("light", 1200, marks=pytest.mark.long), ("dark", 1200), ("light", 390)]
)
def test_every_page_is_without_barriers_and_fits(
    browser: Any, address: str, axe: str, folder: Path, optimizing: Any, scheme: str, width: int
) -> None:
    optimizing.wait(240)
    run = names(folder)[-1]
    store = ReadOnlyStore(folder / "run.db")
    key = store.row("select key from calls where kind = 'lm'")["key"]  # type: ignore[index]
    example = store.row("select example from results where spans is not null")["example"]  # type: ignore[index]
    hash_ = store.row("select hash from candidates order by seq desc")["hash"]  # type: ignore[index]
    store.close()
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}, bypass_csp=True)
    page = context.new_page()
    places = ["/", "/plugins", "/compare", f"/compare?a={run}:baseline&b={run}:winner", f"/runs/{run}", "/nothing"]
    places += ["/grid", f"/grid?side={run}:baseline&side={run}:winner"]
    places += [f"/runs/{run}/{part}" for part in ("rows", "calls", "data", f"candidates/{hash_}", f"call?key={key}")]
    places += [
        f"/runs/{run}/{part}" for part in (f"row?row={example}", "label", "label?by=bob", "label?by=bob&report=1")
    ]
    for place in places:
        page.goto(address + place)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{place} is wider than the screen"
        page.evaluate(axe)
        found = page.evaluate("axe.run()")["violations"]
        grave = [
            (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert not grave, place
    context.close()
