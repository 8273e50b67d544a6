"""Images as inputs: read from the folder of the workflow, sent as parts, stored by their hash."""

from __future__ import annotations

import base64
import io
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.helpers.scripted import Script, make_workflow, run_rows

import workbench
from workbench.cli import cli
from workbench.errors import NodeError, SpecError
from workbench.inference import predict_file
from workbench.lm import Request, estimate_tokens
from workbench.run import prepare
from workbench.store import Journal, Store
from workbench.workflow import parse_signature
from workbench_kit.prompting import LARGEST, image_url


def png(shade: int, size: int = 40) -> bytes:
    """A square picture of noise, so that it is not small when it is packed."""
    rows = b"".join(b"\0" + bytes((shade * 7 + x * y * 31) % 256 for x in range(size)) for y in range(size))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Sees(Script):
    reads_images = True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "project"
    (inside / "pictures").mkdir(parents=True)
    (inside / "pictures" / "a.png").write_bytes(png(1))
    (inside / "pictures" / "b.jpg").write_bytes(b"\xff\xd8\xff\xe0 jpeg \xff\xd9")
    (inside / "notes.txt").write_text("secret")
    (tmp_path / "outside.png").write_bytes(png(2))
    return inside


def seen(request: Request) -> str:
    content = request.messages[-1]["content"]
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    return f"{len(urls)} {urls[0][:22]}"


def test_a_picture_stands_in_the_message_after_the_line_that_names_it(folder: Path) -> None:
    workflow = make_workflow({"look": {"predict": "question, photo: Image, hint -> label"}}, folder)
    script = Sees(seen)
    row = {"question": "what?", "photo": "pictures/a.png", "hint": "small"}
    (run,) = run_rows(workflow, [row], script, folder / "a.db")
    assert run.prediction == {"label": "1 data:image/png;base64,"}, run.message
    first, picture, last = script.requests[0].messages[-1]["content"]
    assert first == {"type": "text", "text": "question: what?\nphoto:"}
    assert base64.b64decode(picture["image_url"]["url"].partition(",")[2]) == png(1)
    assert last == {"type": "text", "text": "hint: small\nlabel:"}
    assert estimate_tokens(script.requests[0].messages) < 2000, "not by the length of the encoded picture"


def test_demos_may_have_pictures_and_an_address_is_passed_on(folder: Path) -> None:
    demos = [{"photo": "pictures/b.jpg", "label": "jay"}]
    workflow = make_workflow({"look": {"predict": "photo: Image -> label", "demos": demos}}, folder)
    script = Sees(lambda request: "x")
    run_rows(workflow, [{"photo": "https://example.org/c.png"}], script, folder / "a.db")
    demo, answer, asked = script.requests[0].messages[-3:]
    assert demo["content"][1]["image_url"]["url"].startswith("data:image/jpeg;base64,") and answer["content"] == "jay"
    assert asked["content"][1]["image_url"]["url"] == "https://example.org/c.png"


def test_friction_45_the_store_holds_a_picture_once_by_its_hash(folder: Path) -> None:
    workflow = make_workflow({"look": {"predict": "question, photo: Image -> label"}}, folder)
    rows = [{"question": f"{i}?", "photo": "pictures/a.png"} for i in range(3)]
    script = Sees(seen)
    run_rows(workflow, rows, script, folder / "a.db")
    store = Store(folder / "a.db")
    calls = [row["request"] for row in store.rows("select request from calls")]
    encoded = base64.b64encode(png(1)).decode()
    assert len(calls) == 3 and all(encoded not in call for call in calls)
    assert [encoded in row["text"] for row in store.rows("select text from texts")] == [True]
    found = Journal(store, 1).read_calls(9)
    store.close()
    sent = sorted(json.dumps([dict(m) for m in r.messages]) for r in script.requests)
    assert sorted(json.dumps(c["request"]["messages"]) for c in found) == sent, "read back as it was sent"
    assert run_rows(workflow, rows, script, folder / "a.db") and len(script.requests) == 3, "replayed from the journal"
    (folder / "pictures" / "a.png").write_bytes(png(3))
    run_rows(workflow, rows[:1], script, folder / "a.db")
    assert len(script.requests) == 4, "another picture is another call"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("../outside.png", "is outside"),
        ("/etc/passwd", "is outside"),
        ("pictures/../../outside.png", "is outside"),
        ("notes.txt", "is neither PNG, JPEG, GIF nor WebP"),
        ("pictures/none.png", "cannot be read"),
        ("pictures", "cannot be read"),
        ("a\0b", "cannot be read"),
        ("data:text/html;base64,PGI+", "is neither PNG"),
        ("data:image/png,raw", "is not a data URI"),
        ("data:image/png;base64,!!!", "is not a data URI"),
        (3, "is not an image"),
        ("", "is not an image"),
        (b"text", "is neither PNG"),
    ],
)
def test_what_is_no_picture_of_the_project_is_refused(folder: Path, value: Any, why: str) -> None:
    """Rows may be a stranger's: a path in one must not send other files of this machine to a model."""
    with pytest.raises(NodeError, match=why) as caught:
        image_url(value, folder)
    assert caught.value.kind == "data"


def test_a_link_that_leads_out_is_refused(folder: Path) -> None:
    (folder / "link.png").symlink_to(folder.parent / "outside.png")
    with pytest.raises(NodeError, match="is outside"):
        image_url("link.png", folder)


def test_a_picture_that_is_too_large_is_refused_without_reading_it(folder: Path) -> None:
    with (folder / "large.png").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(NodeError, match=r"has 20.0 MB, at most 20 are sent"):
        image_url("large.png", folder)


def test_a_pipe_is_refused_without_waiting_for_it(folder: Path) -> None:
    os.mkfifo(folder / "pipe.png")
    with pytest.raises(NodeError, match="it is not a file"):
        image_url("pipe.png", folder)


def test_bytes_are_taken_from_python(folder: Path) -> None:
    (folder / "w.yaml").write_text(json.dumps({"nodes": {"look": {"predict": "photo: Image -> label"}}}))
    with workbench.load(folder / "w.yaml", pool=Sees(seen)) as wf:
        assert wf(photo=png(5)).label == "1 data:image/png;base64,"


def test_a_model_that_reads_none_is_told_before_anything_is_sent(folder: Path) -> None:
    workflow = make_workflow({"look": {"predict": "photo: Image -> label"}}, folder)
    script = Script(seen)
    with pytest.raises(SpecError, match="openai/scripted reads no images"):
        run_rows(workflow, [{"photo": "pictures/a.png"}], script, folder / "a.db")
    assert not script.requests


@pytest.mark.parametrize("text", ["a -> b: Image", "a -> b: list[Image], c: Image"])
def test_images_are_no_outputs(text: str) -> None:
    with pytest.raises(SpecError, match="only inputs may be images"):
        parse_signature(text)


def test_show_tells_a_picture_by_its_kind_and_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.lm.pool.make_lm", lambda spec: Sees(lambda request: "x"))
    (folder / "rows.jsonl").write_text('{"photo": "pictures/a.png", "label": "x"}\n' * 3)
    content = {
        "lm": {"model": "openai/scripted", "api_base": "http://127.0.0.1:9/v1"},
        "data": {"val": "rows.jsonl"},
        "metric": "exact_match(label)",
        "nodes": {"look": {"predict": "photo: Image -> label"}},
    }
    (folder / "w.yaml").write_text(json.dumps(content))
    done = CliRunner().invoke(cli, ["run", str(folder / "w.yaml"), "--example", "0", "--db", str(folder / "a.db")])
    assert done.exit_code == 0 and "[image/png, 1 kB]" in done.output and "base64" not in done.output, done.output


@pytest.mark.parametrize("model", ["openai/m", pytest.param("litellm/openai/m", marks=pytest.mark.slow)])
def test_the_providers_send_the_part_as_the_format_has_it(folder: Path, model: str) -> None:
    """Through a real socket: what arrives is the chat-completions form of a picture."""
    import asyncio
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from workbench.lm import make_lm
    from workbench.spec import lm_spec

    arrived: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True  # else a body waits 40 ms for its head

        def do_POST(self) -> None:
            arrived.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            message = {
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1234, "completion_tokens": 1, "total_tokens": 1235},
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
            }
            body = json.dumps(message).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
    url = image_url("pictures/a.png", folder)
    parts = [{"type": "text", "text": "photo:"}, {"type": "image_url", "image_url": {"url": url}}]
    lm = make_lm(lm_spec({"model": model, "api_base": f"http://127.0.0.1:{server.server_port}/v1"}))

    async def main() -> Any:
        try:
            return await lm.complete(Request(({"role": "user", "content": parts},)))
        finally:
            await lm.aclose()

    found = asyncio.run(main())
    server.shutdown()
    server.server_close()
    (body,) = arrived
    (picture,) = [part for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
    assert picture["image_url"]["url"] == url and found.prompt_tokens == 1234


def write_rows(folder: Path, values: list[Any]) -> Path:
    """A workflow in `folder`, with its rows in `folder/data`."""
    (folder / "data").mkdir(exist_ok=True)
    rows = [{"img": value, "label": str(n)} for n, value in enumerate(values)]
    (folder / "data" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = {
        "name": "images",
        "lm": {"model": "openai/m", "api_base": "http://127.0.0.1:9/v1"},
        "data": {"file": "data/rows.jsonl", "split": {"train": 2, "val": 2, "test": 2}},
        "metric": "exact_match(label)",
        "nodes": {"look": {"ensemble": {"predict": "img: Image -> label"}, "samples": 2}},
    }
    (folder / "w.yaml").write_text(json.dumps(spec))
    return folder / "w.yaml"


def test_i12_a_picture_beside_the_data_is_found(folder: Path) -> None:
    (folder / "data" / "img").mkdir(parents=True)
    (folder / "data" / "img" / "c.png").write_bytes(png(3))
    values = [
        "img/c.png",
        "pictures/a.png",
        "data/img/c.png",
        "https://h/a.png",
        image_url(png(1), folder),
        "img/c.png",
    ]
    file = write_rows(folder, values)
    spec = json.loads(file.read_text())
    pool = Sees(lambda request: f"label: {seen(request)[0]}")
    for reader in ("", "jsonl:"):
        file.write_text(json.dumps({**spec, "data": {**spec["data"], "file": f"{reader}data/rows.jsonl"}}))
        _, _, task, _ = prepare(file)
        rows = [*task.dataset.train, *task.dataset.val, *task.dataset.test.open()]
        found = {row["label"]: row["img"] for row in rows}
        assert found["0"] == found["5"] == "data/img/c.png" and found["1"] == "pictures/a.png"
        out = folder / f"out{reader[:-1]}.jsonl"
        place = f"{reader}{folder / 'data' / 'rows.jsonl'}"
        assert predict_file(file, place, out, pool=pool).failures == {}
        with pytest.raises(SpecError, match="that file is read by this command"):
            predict_file(file, place, folder / "data" / "rows.jsonl", pool=pool)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP"])
def test_i12_a_picture_that_was_cut_off_is_none(form: str) -> None:
    """As Pillow writes them; a JPEG with a small one inside, as cameras make it, and with more behind its end."""
    image = pytest.importorskip("PIL.Image")
    picture, small = io.BytesIO(), io.BytesIO()
    made = image.frombytes("L", (64, 64), bytes(x * y * 31 % 256 for x in range(64) for y in range(64)))
    made.resize((8, 8)).save(small, form)
    made.save(picture, form, **({"exif": b"Exif\0\0" + small.getvalue()} if form == "JPEG" else {}))
    content = picture.getvalue()
    assert image_url(content, Path()).startswith(f"data:image/{form.lower()};base64,")
    assert image_url(content + b"\0" * 500, Path())
    for part in (0.2, 0.5, 0.9):
        with pytest.raises(NodeError, match=f"'image' is a {form} without its end: the file was cut off"):
            image_url(content[: 800 + int(part * (len(content) - 800))], Path())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("cut.png", "is a PNG without its end: the file was cut off"),
        ("img/none.png", "'img': 'img/none.png' cannot be read"),
        ("notes.txt", "is neither PNG, JPEG, GIF nor WebP"),
        ("paper.pdf", "is neither PNG, JPEG, GIF nor WebP"),
        (base64.b64encode(png(1)).decode(), "it looks like base64, which is written data:image/png;base64,..."),
        ("../outside.png", "is outside"),
        ("data:image/png;base64,!!!", "is not a data URI"),
        (None, "is not an image: None"),
        (7, "is not an image: 7"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_i12_a_picture_that_cannot_be_read_is_an_error_in_the_data(folder: Path, value: Any, said: str) -> None:
    """Before anything is sent, by every command that reads the file, with the row and the path."""
    (folder / "paper.pdf").write_bytes(b"%PDF-1.7")
    (folder / "cut.png").write_bytes(png(1)[:-20])
    path = write_rows(folder, ["pictures/a.png"] * 5 + [value])
    runs = [["eval", "--db", str(folder / "a.db")], ["optimize", "--db", str(folder / "a.db")]]
    for words in (["validate"], *(runs if value == "img/none.png" else ())):
        done = CliRunner().invoke(cli, [words[0], str(path), *words[1:]])
        told = str(done.exception) + done.output
        assert done.exit_code and "cannot be read in 1 of the 6 rows: data/rows.jsonl:6" in told and said in told, told
