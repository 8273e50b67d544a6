"""Chat templates of strangers: rendered as transformers does, and ended where they do not end."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from tests.helpers.tiny_lm import make_tokenizer

from workbench_engine import chat_template

MESSAGES = [
    {"role": "system", "content": "be kind"},
    {"role": "user", "content": "a 'quote' \u00e4\U0001f600\n{{ x }}", "name": None},
    {
        "role": "assistant",
        "content": [{"type": "text", "text": "parts"}],
        "tool_calls": [{"id": 1, "f": {"a": [1.5, True]}}],
    },
]
TEMPLATES = [
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m|tojson }}{{ ns.n }}{% endfor %}",
    "{{ messages | map(attribute='role') | join(',') }}{{ eos_token }}{{ pad_token }}{{ bos_token is defined }}",
    "{% macro s(m) %}{{ m.content|upper }}{% endmacro %}{% for m in messages %}{{ s(m) }}{% break %}{% endfor %}",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}{{ messages[1].name is defined }}{{ tools }}",
]

#: Each would go on for hours, or take gigabytes.
ENDLESS = {
    "loops": "{% set r = range(99999) %}" + "{% for a in r %}" * 3 + "{% endfor %}" * 3,
    "macros": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(200) }}",
    "numbers": "{{ (10 ** (10 ** 9)) % 7 }}",
    "powers": "{% set ns = namespace(n=3) %}{% for i in range(99) %}{% set ns.n = ns.n ** 9 %}{% endfor %}{{ ns.n }}",
}
LARGE = {
    "text": "{{ 'a' * 10 ** 11 }}",
    "list": "{{ ([0] * 10 ** 11) | length }}",
    "length": "{{ ('a' * 3 * 10 ** 9) | length }}",
    "padding": "{{ '%099999999999d' | format(1) }}",
    "output": "{{ 'a' * 10 ** 8 }}",
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("transformers")
        return make_tokenizer()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(chat_template, "DEADLINE", 0.3)
    yield
    chat_template._RENDERER._overran.clear()


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("template", TEMPLATES)
def test_the_text_is_that_of_transformers(tokenizer: Any, template: str, prompted: bool) -> None:
    tokenizer.chat_template = template
    wanted = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=prompted, tokenize=False)
    assert chat_template.render_chat(tokenizer, MESSAGES, add_generation_prompt=prompted) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS)
def test_a_template_that_does_not_end_is_ended(tokenizer: Any, template: str, soon: None) -> None:
    tokenizer.chat_template = template
    with pytest.raises(
        chat_template.TemplateError, match=r"more than 0.3 s|RecursionError|too much memory|OverflowError"
    ):
        chat_template.render_chat(tokenizer, MESSAGES)
    tokenizer.chat_template = TEMPLATES[0]
    assert chat_template.render_chat(tokenizer, MESSAGES[:1]) == "<system>be kind", "the next one is rendered"


@pytest.mark.slow
def test_it_is_not_waited_for_again_and_again(tokenizer: Any, soon: None) -> None:
    tokenizer.chat_template = ENDLESS["loops"]
    for words in (*["more than 0.3 s$"] * 3, "more than 0.3 s 3 times before$"):
        with pytest.raises(chat_template.TemplateError, match=words):
            chat_template.render_chat(tokenizer, MESSAGES)


@pytest.mark.parametrize("template", LARGE.values(), ids=LARGE)
def test_a_template_that_asks_for_gigabytes_is_refused(tokenizer: Any, template: str) -> None:
    tokenizer.chat_template = template
    with pytest.raises(chat_template.TemplateError, match="memory|characters|OverflowError"):
        chat_template.render_chat(tokenizer, MESSAGES)


def test_what_a_template_refuses_is_said(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(chat_template.TemplateError, match="TemplateError: roles must alternate"):
        chat_template.render_chat(tokenizer, MESSAGES)
    with pytest.raises(chat_template.TemplateError, match="no messages"):
        chat_template.render_chat(tokenizer, [])


def test_threads_and_forks_get_their_own_texts(tokenizer: Any) -> None:
    tokenizer.chat_template = "{{ messages[0].content }}"
    found: dict[int, set[str]] = {}

    def render(i: int) -> None:
        found[i] = {chat_template.render_chat(tokenizer, [{"content": f"text {i}"}]) for _ in range(20)}

    threads = [threading.Thread(target=render, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: {f"text {i}"} for i in range(4)}
    process = chat_template._RENDERER._process
    assert process is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        own = chat_template.render_chat(tokenizer, [{"content": "of the fork"}])
        mine = chat_template._RENDERER._process
        apart = mine is not None and mine.pid != process.pid
        chat_template._RENDERER.end()
        os._exit(0 if own == "of the fork" and apart else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert chat_template.render_chat(tokenizer, [{"content": "ours"}]) == "ours"
    assert chat_template._RENDERER._process is process and process.poll() is None, "and it is still the same one"
