"""`workbench view` answers its own pages to those who may see them, and takes changes from nowhere else."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from workbench.cli import cli
from workbench.errors import StoreError
from workbench_view.server.access import POLICY, Access
from workbench_view.server.app import CHANGES, PAGES, make_app
from workbench_view.server.site import Site

BASE = "http://localhost:8321"
TOKEN = "a-token-of-some-length"


def form_of(client: TestClient, run: str) -> dict[str, str]:
    """What the form of a run's tags sends."""
    page = client.get(f"/runs/{run}").text
    token = re.search(r'name="form_token" value="([^"]+)"', page)
    assert token is not None
    return {"form_token": token[1], "tags": "tried", "note": "a note"}


def tags_of(client: TestClient, run: str) -> str:
    found = re.search(r'name="tags" value="([^"]*)"', client.get(f"/runs/{run}").text)
    assert found is not None
    return found[1]


# Names (DNS rebinding)


@pytest.mark.parametrize("host", ["localhost", "localhost:8321", "127.0.0.1", "127.0.0.1:9", "LOCALHOST:8321"])
def test_names_of_this_machine_are_answered(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.fault("dns-rebinding")
def test_other_names_are_refused(client: TestClient, subtests: pytest.Subtests) -> None:
    for host in [
        *(
            "evil.com",
            "127.0.0.1.evil",
            "127.0.0.1.evil.com:8321",
            "localhost.",
            "localhost.evil.com",
            "localhost:8321.evil",
        ),
        *(
            "[::1]",
            "[::ffff:127.0.0.1]:8321",
            "0.0.0.0",
            "127.1",
            "2130706433",
            "127.0.0.2",
            "",
            " localhost",
            "localhost@evil",
        ),
        *("localhost:", "localhost,evil.com", "127.0.0.1:8321/x", "a" * 5000),
    ]:
        for path in ["/", "/assets/view.js", "/nothing"]:
            with subtests.test(host=host, path=path):
                assert client.get(path, headers={"host": host}).status_code == 403


def raw_answer(app: Any, headers: list[tuple[bytes, bytes]], path: str = "/", scope_type: str = "http") -> list[Any]:
    """What the application sends for a request that no client would make."""
    import asyncio

    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": scope_type,
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "scheme": "http",
        "server": ("127.0.0.1", 8321),
        "http_version": "1.1",
    }
    asyncio.run(app(scope, receive, send))
    return sent


def test_a_request_without_a_name_or_with_two_is_refused(site: Site) -> None:
    app = make_app(site, Access())
    for names in ([], [b"localhost", b"evil.com"], [b"localhost", b"localhost"]):
        assert raw_answer(app, [(b"host", name) for name in names])[0]["status"] == 403
    assert raw_answer(app, [(b"host", b"localhost")])[0]["status"] == 200


@pytest.mark.fault("foreign-pages")
def test_web_sockets_are_closed(site: Site) -> None:
    sent = raw_answer(make_app(site, Access()), [(b"host", b"localhost")], scope_type="websocket")
    assert [message["type"] for message in sent] == ["websocket.close"]


def test_beyond_loopback_only_its_own_names_are_known() -> None:
    assert Access("::1").knows_host("[::1]:8321", "::1") and not Access("::1").knows_host("127.0.0.1", "::1")
    wide = Access("0.0.0.0", TOKEN, frozenset({"lab.example"}))
    assert wide.knows_host("10.0.0.7:8321", "10.0.0.7") and wide.knows_host("lab.example", "10.0.0.7")
    assert wide.knows_host(socket.gethostname(), "10.0.0.7")
    assert not wide.knows_host("10.0.0.8", "10.0.0.7") and not wide.knows_host("evil.com", "10.0.0.7")
    assert Access("10.0.0.7", TOKEN).knows_host("10.0.0.7", None)
    assert not Access("10.0.0.7", TOKEN).knows_host("localhost", None)


# The token


@pytest.fixture
def guarded(site: Site) -> TestClient:
    return TestClient(make_app(site, Access(token=TOKEN)), base_url=BASE, follow_redirects=False)


@pytest.mark.parametrize("path", ["/", "/assets/view.js", "/nothing", "/?token=", "/?token=wrong", f"/?token={TOKEN}x"])
def test_without_the_token_nothing_is_shown(guarded: TestClient, path: str) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 401 and "simulated" not in answer.text and TOKEN not in answer.text


def test_the_token_is_exchanged_for_a_cookie(guarded: TestClient, runs: dict[str, Any]) -> None:
    answer = guarded.get(f"/runs/{runs['optimize']}?token={TOKEN}&x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{runs['optimize']}?x=1")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
    shown = guarded.get(answer.headers["location"])
    assert shown.status_code == 200 and TOKEN not in shown.text and TOKEN not in str(shown.headers)


def test_a_bearer_is_let_in_and_a_false_cookie_is_not(guarded: TestClient) -> None:
    assert guarded.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert guarded.get("/", headers={"authorization": "Bearer x"}).status_code == 401
    assert guarded.get("/", headers={"cookie": f"workbench_view_8321={TOKEN}"}).status_code == 401
    assert guarded.get("/", headers={"authorization": "Bearer \xff".encode("latin-1")}).status_code == 401


def test_the_way_in_leads_to_no_other_server(site: Site) -> None:
    guarded = TestClient(make_app(site, Access(token=TOKEN)), base_url=BASE, follow_redirects=False)
    for path in ("//evil.com/", "///evil.com", "/\\evil.com", "//evil.com\\@x"):
        sent = raw_answer_with(make_app(site, Access(token=TOKEN)), path, f"token={TOKEN}")
        place = dict(sent[0]["headers"])[b"location"].decode()
        assert re.match(r"/(?![/\\])", place), place
    assert guarded.post(f"/?token={TOKEN}").status_code == 401


def raw_answer_with(app: Any, path: str, query: str) -> list[Any]:
    async def asked(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "query_string": query.encode()}, receive, send)

    return raw_answer(asked, [(b"host", b"localhost")], path)


# Changes


def test_a_form_of_our_own_page_changes_tags_and_note(client: TestClient, runs: dict[str, Any]) -> None:
    run = runs["cells"][0]
    answer = client.post(f"/runs/{run}/tags", data=form_of(client, run), headers={"origin": BASE})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run}#notes")
    assert tags_of(client, run) == "tried" and "a note" in client.get(f"/runs/{run}").text
    assert run in client.get("/?tag=tried").text and runs["optimize"] not in client.get("/?tag=tried").text


@pytest.mark.fault("foreign-pages")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.com"},
        {"origin": "null"},
        {},
        {"origin": "http://localhost:1"},
        {"origin": "https://localhost:8321"},
        {"origin": "http://127.0.0.1:8321"},
        {"origin": BASE, "content-type": "text/plain"},
        {"origin": BASE, "content-type": "multipart/form-data; boundary=x"},
        {"origin": BASE, "content-type": "application/json"},
    ],
)
def test_a_change_from_elsewhere_is_refused(client: TestClient, runs: dict[str, Any], headers: dict[str, str]) -> None:
    run = runs["cells"][1]
    sent = {"content-type": "application/x-www-form-urlencoded", **headers}
    form = "&".join(f"{name}={value}" for name, value in form_of(client, run).items())
    assert client.post(f"/runs/{run}/tags", content=form, headers=sent).status_code in (403, 415)
    assert tags_of(client, run) == ""


@pytest.mark.parametrize("token", [None, "", "x", "\udc80"])
def test_a_form_needs_its_own_token(client: TestClient, runs: dict[str, Any], token: str | None) -> None:
    run = runs["cells"][1]
    form = {"tags": "stolen", **({} if token is None else {"form_token": token.encode("utf-8", "replace").decode()})}
    assert client.post(f"/runs/{run}/tags", data=form, headers={"origin": BASE}).status_code == 403
    assert tags_of(client, run) == ""


def test_a_form_has_its_limits(client: TestClient, runs: dict[str, Any]) -> None:
    run, form = runs["cells"][1], form_of(client, runs["cells"][1])
    for wrong, status in (
        ({"note": "x" * 70_000}, 413),
        ({"tags": "a<b"}, 422),
        ({"tags": "last"}, 422),
        (dict.fromkeys(map(str, range(150)), "x"), 413),
    ):
        answer = client.post(f"/runs/{run}/tags", data=form | wrong, headers={"origin": BASE})
        assert answer.status_code == status and tags_of(client, run) == ""
    assert client.post("/runs/nobody/tags", data=form, headers={"origin": BASE}).status_code == 404


@pytest.mark.fault("foreign-pages")
def test_reading_changes_nothing(client: TestClient, runs: dict[str, Any]) -> None:
    database, run = Path(runs["database"]), runs["optimize"]
    before = database.read_bytes()
    for path in PAGES:
        client.get(path.format(run=run, hash=runs["winner"], name="proof", form="md"))
    for path in CHANGES:
        shown = 404 if path == "/label" else 200  # no file of rows is labelled here
        assert client.get(path.format(run=run)).status_code == (shown if path in PAGES else 405)
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            assert client.request(method, path.format(run=run)).status_code == 405
    for path in PAGES.keys() - CHANGES.keys():
        assert client.post(path.format(run=run, hash="x", name="x", form="md")).status_code == 405
    assert database.read_bytes() == before


# Headers and paths


@pytest.mark.parametrize("path", ["/", "/plugins", "/compare", "/assets/view.js", "/nothing", "/runs/nobody"])
def test_every_answer_has_the_policy(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY and "unsafe" not in POLICY
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert client.get("/", headers={"host": "evil.com"}).headers["content-security-policy"] == POLICY


def test_pages_have_no_script_and_no_style_of_their_own(client: TestClient, runs: dict[str, Any]) -> None:
    run, winner = runs["optimize"], runs["winner"]
    pages = ["/", "/plugins", f"/compare?a={run}:baseline&b={run}:winner", f"/runs/{run}", f"/runs/{run}/rows"]
    pages += [f"/runs/{run}/candidates/{winner}", f"/runs/{run}/data", f"/runs/{run}/calls", f"/runs/{runs['killed']}"]
    for path in pages:
        text = client.get(path).text
        assert re.findall(r"<script[^>]*>", text) == ['<script src="/assets/view.js" defer>'], path
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text), path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), path


def test_a_path_leads_to_no_file(client: TestClient, runs: dict[str, Any], subtests: pytest.Subtests) -> None:
    for path in [
        *(
            "/assets/../commands.py",
            "/assets/%2e%2e/commands.py",
            "/assets/..%2fcommands.py",
            "/assets/%00",
            "/assets/",
        ),
        *("/assets//etc/passwd", "/assets/%2fetc%2fpasswd", "/assets/view.js%00.css", "/assets/.%2e/%2e./run.db"),
        *("/runs/../run.db", "/runs/%2e%2e", "/runs/%2e%2e%2frun.db", "/runs/%00", "/runs/%2fetc%2fpasswd"),
        *(
            "/runs/{run}/report.html%00",
            "/runs/{run}/report...%2f",
            "/runs/{run}/report.py",
            "/runs/{run}/pictures/..svg",
        ),
        *("/runs/{run}/pictures/%2e%2e%2fx.svg", "/runs/{run}/candidates/%2e%2e", "/runs/{run}/candidates/%25"),
        *("/runs/{run}%00", "/run.db", "//etc/passwd", "/etc/passwd", "/runs/%25", "/runs/_", "/runs/last"),
    ]:
        with subtests.test(path=path):
            answer = client.get(f"{BASE}{path.format(run=runs['optimize'])}")
            assert answer.status_code == 404 and "SQLite" not in answer.text and "import" not in answer.text
            sent = raw_answer(client.app, [(b"host", b"localhost")], path.replace("{run}", runs["optimize"]))
            assert sent[0]["status"] == 404


def test_errors_tell_no_more_than_they_must(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(site, "log", lines.append)

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("the secret sk-123")

    monkeypatch.setattr("workbench_view.server.runs.list_run_heads", broken)
    answer = TestClient(make_app(site, Access()), base_url=BASE).get("/")
    assert answer.status_code == 500 and "sk-123" not in answer.text and "Traceback" not in answer.text
    assert len(lines) == 1 and "ValueError" in lines[0] and lines[0].split()[0] in answer.text


# The command


def view(*words: Any) -> Any:
    return CliRunner().invoke(cli, ["view", *map(str, words)])


@pytest.mark.fault("other-machines")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "localhost.evil.com", "127.0.0.1.evil"])
def test_listening_beyond_this_machine_needs_a_token(runs: dict[str, Any], host: str) -> None:
    done = view("--db", runs["database"], "--host", host)
    assert done.exit_code == 2 and "--make-token" in done.output


def test_a_short_token_is_refused(runs: dict[str, Any]) -> None:
    done = view("--db", runs["database"], "--token", "short")
    assert done.exit_code == 2 and "16" in done.output


def test_a_database_that_is_none_is_told(tmp_path: Path) -> None:
    done = view("--db", tmp_path / "none.db")
    assert done.exit_code and isinstance(done.exception, StoreError)
    assert "there is no run database" in str(done.exception)


@pytest.mark.slow
def test_a_token_is_made_and_told_once(runs: dict[str, Any]) -> None:
    command = [sys.executable, "-m", "workbench", "view", "--db", str(runs["database"]), "--port", "0"]
    command += ["--host", "0.0.0.0", "--make-token"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r":(\d+)/\?token=(\S+)", process.stderr.readline())
        assert found is not None and len(found[2]) >= 24
        base = f"http://127.0.0.1:{found[1]}"
        for path, status in (("/", 401), (f"/?token={found[2]}", 303)):
            request = urllib.request.Request(base + path)
            with pytest.raises(urllib.error.HTTPError) as refused:
                NO_REDIRECTS.open(request, timeout=20)
            assert refused.value.code == status
            refused.value.close()
        cookie = refused.value.headers["set-cookie"].partition(";")[0]
        shown = urllib.request.Request(base, headers={"cookie": cookie})
        with NO_REDIRECTS.open(shown, timeout=20) as answer:
            assert answer.status == 200 and found[2].encode() not in answer.read()
    finally:
        process.terminate()
        assert found is None or found[2] not in process.communicate(timeout=20)[1]


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


NO_REDIRECTS = urllib.request.build_opener(_Stay)


def test_importing_the_command_line_loads_no_server() -> None:
    code = "import sys, workbench_view.commands; print({'starlette', 'uvicorn', 'jinja2'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
