"""Nothing but the redacted form is written: keys, e-mail addresses, card numbers, IP addresses, phone numbers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.plugins.traces.samples import chat, imported, langfuse, otel_span, otlp, write

from workbench_traces.redact import KINDS, Redactor

FOUND = [
    ("key", "my key is sk-proj-abcdefghijklmnop1234 ok", "my key is [key] ok"),
    ("key", "ghp_abcdefghijklmnopqrst0123", "[key]"),
    ("key", "AKIAIOSFODNN7EXAMPLE!", "[key]!"),
    ("key", "Authorization: Bearer abc.def-ghi_jkl0123", "Authorization: [key]"),
    ("key", "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-_", "jwt [key]"),
    ("key", "password: hunter2!", "[key]"),
    ("key", '"api_key": "a1b2c3d4"', '"[key]"'),
    ("key", "https://bob:s3cret@host/x", "https://[key]@host/x"),
    ("key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY----- end", "[key] end"),
    ("key", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "[key]"),  # these: security 15
    ("key", r"{\"password\": \"hunter2!xyz\"}", r"{\"[key]\"}"),
    ("key", r"{\\\"api_key\\\":\\\"a1b2c3d4\\\"}", r"{\\\"[key]\\\"}"),
    (
        "key",
        "to https://hooks.slack.com/services/T000/B000/XXXXXXXXXXXXXXXX now",
        "to https://hooks.slack.com/[key] now",
    ),
    ("key", "DefaultEndpointsProtocol=https;AccountKey=abc+123/def==;x", "DefaultEndpointsProtocol=https;[key];x"),
    ("key", "SG.abcdefghijklmnop.qrstuvwxyz0123456789", "[key]"),
    ("key", "dop_v1_0123456789abcdef0123456789abcdef", "[key]"),
    ("key", "sid SK0123456789abcdef0123456789abcdef", "sid [key]"),
    ("key", "bot 123456789:AAabcdefghijklmnopqrstuvwxyz0123456", "bot [key]"),
    ("key", "DB_PASSWORD=correct-horse1", "[key]"),
    ("key", "clientSecret: 'abc123def'", "[key]'"),
    ("key", "GET /x?page=2&sig=ab%2Fcd12&n=1", "GET /x?page=2&[key]&n=1"),
    ("key", "gsk_abcdefghijklmnop and xai-abcdefghijklmnop", "[key] and [key]"),
    ("key", "redis://:hunter2pw@db:6379/0", "redis://[key]@db:6379/0"),
    ("key", "Authorization: Token a3fb19545be334ad95ef", "Authorization: [key]"),
    ("key", "Set-Cookie: session=Mj3zZmIHkKlm; Path=/\nok", "[key]\nok"),
    ("key", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nabc\n-----END PGP PRIVATE KEY BLOCK----- end", "[key] end"),
    ("key", "f1668fd1be6943e9de264f9cb5d9ef7b-us12", "[key]"),
    ("key", "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs", "[key]"),
    ("key", f"pat{'a' * 14}.{'0' * 64}, {'a' * 14}.atlasv1.{'b' * 60}", "[key], [key]"),
    ("key", "dp.pt.DvM8butEVOqYEVqnwgPq and sbp_00f01f01b99ff994 or NRAK-MCGMUDGYVSLZ", "[key] and [key] or [key]"),
    ("key", "<password>hunter2!x</password>", "<[key]"),
    ("key", "curl --token FICaEeTtloIhQ3ll -u bob:hunter2!x https://x", "curl [key] -u [key] https://x"),
    ("key", "apiKey := \"TCchG47UnuTC\" or 'secret' => '2wCHHAQEiNU6'", "[key]\" or '[key]'"),
    ("card", "4111.1111.1111.1111", "[card]"),
    ("email", "to=bob%40example.com&x", "to=[email]&x"),
    ("email", "write to Ann.Lee+x@mail.example.co.uk.", "write to [email]."),
    ("email", "jürgen@büro.de", "[email]"),
    ("email", "ann\u200b@exa\u00admple.com", "[email]"),
    ("email", "ann＠example．com", "[email]"),
    ("email", "\u202eann@\u202aexample.com\u202c", "\u202e[email]\u202c"),
    ("card", "card 4111 1111 1111 1111, thanks", "card [card], thanks"),
    ("card", "4111111111111111 12/27", "[card] 12/27"),
    ("card", "12 5500-0000-0000-0004", "12 [card]"),
    ("ip", "from 192.168.10.254:8080", "from [ip]:8080"),
    ("ip", "at 2001:db8::ff00:42:8329 now", "at [ip] now"),
    ("phone", "call +49 (0)30 1234-5678 now", "call [phone] now"),
    ("phone", "(555) 123-4567", "[phone]"),
    ("phone", "555-123-4567 or 030 1234 5678", "[phone] or [phone]"),
    ("phone", "tel:+15551234567", "tel:[phone]"),
]


def test_what_has_a_form_is_found(subtests: pytest.Subtests) -> None:
    for kind, text, wanted in FOUND:
        with subtests.test(kind=kind):
            redactor = Redactor()
            assert redactor.text(text) == wanted
            assert set(redactor.counts) == {kind}
            assert Redactor(keep=[kind]).text(text) == text


def test_what_only_looks_like_it_stays(subtests: pytest.Subtests) -> None:
    for text in [
        "order 4111111111111112",  # no card by Luhn's check
        "0000 0000 0000 0000",
        "on 2026-11-24 at 10:30:59",
        "24.11.2026 10",
        "version 3.11.4 of 1.2.3",
        "256.1.1.1",
        "add 1234 5678 9012",
        "a@b",
        "std::vector<int> :: x",
        "token: please",
        "max_tokens: 4096, tokens: 512",
        "SKU: SKY-0123456789",
        "secretary = ann1",
        "public_key_id = 17",
        "the ratio is 3.14159265358979",
        "1,234,567,890",
        "id 550e8400-e29b-41d4-a716-446655440000",
    ]:
        with subtests.test(text=text):
            assert Redactor().text(text) == text


def test_values_are_redacted_with_their_names_and_numbers() -> None:
    redactor = Redactor()
    value = {"ann@x.com": [{"password": "abc", "card": 4111111111111111, "n": 12345678901, "ok": True}]}
    told = redactor.value(value)
    assert told == {"[email]": [{"password": "[key]", "card": "[card]", "n": 12345678901, "ok": True}]}


@given(st.text(max_size=200), st.sampled_from([found for *_, found in [(0, t) for _, t, _ in FOUND]]))
def test_redacting_twice_is_redacting_once(text: str, found: str) -> None:
    once = Redactor().text(f"{text} {found}")
    again = Redactor()
    assert again.text(once) == once and not again.counts


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["a", "1", "1.", "a@", "+1", "1 ", "-----BEGIN ", "sk-", "::", "(1", "é", "\u200b", "eyJa."]
)
def test_a_long_text_takes_no_longer_than_its_length(part: str) -> None:
    text = part * (400_000 // len(part))

    def seconds(of: str) -> float:
        began = time.process_time()
        Redactor().text(of)
        return time.process_time() - began

    short = max(0.05, seconds(text[: len(text) // 4]))
    assert seconds(text) < 16 * short  # four times as much at best; squared, it would be sixteen times and more


def test_nothing_of_it_is_in_any_file_and_counts_are_told(tmp_path: Path) -> None:
    secrets = ["ann@corp.example", "sk-live-abcdefghijklmnop", "4111 1111 1111 1111", "10.20.30.40", "+1 555 123 4567"]
    told = f"I am {', '.join(secrets)}"
    record = chat(1, user=secrets[0], comment=told, correction=told, conversation_id=secrets[0])
    record["messages"][0]["content"] = record["messages"][1]["content"] = told
    trace = langfuse(2) | {"userId": secrets[0], "input": {secrets[0]: told}, "sessionId": secrets[4]}
    span = otlp(otel_span(3, trace=secrets[0], gen_ai__prompt__0__content=told, gen_ai__completion__0__content=told))
    files = [write(tmp_path / "ann@corp.example.jsonl", record, chat(5), chat(6)), write(tmp_path / "l.jsonl", trace)]
    out = tmp_path / "o" / "rows.jsonl"
    rows, said = imported(out, *files, write(tmp_path / "s.jsonl", span))
    written = "".join(p.read_text(encoding="utf-8") for p in out.parent.iterdir())
    assert not [secret for secret in secrets if secret in written or json.dumps(secret)[1:-1] in written]
    assert rows[0]["user"] == "user-1" or rows[0]["user"].startswith("user-")
    assert all(f"{kind} " in said for kind in KINDS) and len(rows) == 5


def test_a_redacted_user_keeps_a_name_of_its_own(tmp_path: Path) -> None:
    people = ["ann@x.com", "bob@x.com", "ann@x.com", "cat@x.com", "plain"]
    file = write(tmp_path / "c.jsonl", *(chat(n, user=user) for n, user in enumerate(people)))
    rows, _ = imported(tmp_path / "o" / "rows.jsonl", file, "--split", "user")
    names = [row["user"] for row in rows]
    assert names[0] == names[2] and len(set(names)) == 4 and names[4] == "plain" and "x.com" not in str(names)
    rows, said = imported(tmp_path / "k" / "rows.jsonl", file, "--keep", "email")
    assert rows[1]["user"] == "bob@x.com" and "Redacted: nothing" in said


def test_hostile_cells_pass_as_data(tmp_path: Path) -> None:
    cells: list[Any] = ["x" * 1_000_000, "\u202eevil\u202c", "\ud800", "nul \x00 inside", "\x1b[31mred", "=1+1"]
    file = tmp_path / "c.jsonl"
    lines = []
    for n, cell in enumerate(cells):
        record = chat(n)
        record["messages"][1]["content"] = cell
        lines.append(json.dumps(record))
    file.write_text("\n".join(lines))
    rows, said = imported(tmp_path / "o" / "rows.jsonl", file)
    assert [row["input"] for row in rows] == cells and "\x1b" not in said
