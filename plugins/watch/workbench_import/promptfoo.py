"""A configuration of promptfoo: prompts, providers, and tests with vars and assertions.

A prompt becomes the instructions of a node that reads the prompt's variables; several prompts and providers become
alternatives under `search:`. Tests become rows. Templates beyond `{{name}}`, and code, are left out and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.base.data_files import read_data
from workbench.base.type_guards import is_dict, is_list
from workbench.errors import SpecError
from workbench_import.imported import Imported, Wishes, as_list, parsed, read_value
from workbench_import.promptfoo_tests import VARIABLE, Tests, expand_tests, leave_keys, safe_file

_TEMPLATE = re.compile(r"\{%|\{\{")
_FILE = re.compile(r"[\w./*-]{1,200}\.(txt|md|json|ya?ml|py|js|ts)")
_PROMPT_FILES = (".txt", ".md", ".json", ".yaml", ".yml")
#: promptfoo's providers by their names here.
_PROVIDERS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "gemini",
    "vertex": "vertex_ai",
    "mistral": "mistral",
    "groq": "groq",
    "deepseek": "deepseek",
    "openrouter": "openrouter",
    "cohere": "cohere",
    "ollama": "ollama",
    "xai": "xai",
}
#: Words between provider and model that select one of the provider's interfaces.
_INTERFACES = ("chat", "responses", "messages", "completion")
_KEYS = ("prompts", "providers", "targets", "tests", "defaultTest", "description", "$schema")


def read(path: Path, wishes: Wishes) -> Imported:
    """Import the configuration as a workflow. Raises SpecError."""
    config = read_value(path)
    if not is_dict(config):
        raise SpecError(f"{path.name} is not a configuration of promptfoo", hint="It has prompts, providers and tests.")
    found = Imported({})
    found.left += [f"'{key}'" for key in config if key not in _KEYS]
    prompts = list(_prompts(config.get("prompts"), path.parent, found))
    if not prompts:
        raise SpecError(f"{path.name}: no prompt can be taken", hint=f"Left out: {'; '.join(found.left) or 'nothing'}.")
    models = _models(config.get("providers") or config.get("targets"), found)
    tests = expand_tests(config, path.parent, found)
    variables = list(dict.fromkeys(name for prompt in prompts for name in VARIABLE.findall(prompt)))
    rows = [row for row in tests.rows if all(name in row for name in variables)]
    if len(rows) < len(tests.rows):
        found.left.append(f"{len(tests.rows) - len(rows)} test(s) without a variable of the prompts")
    output = "output"
    while output in variables:
        output += "_"
    texts = list(dict.fromkeys(_instructions(prompt) for prompt in prompts))
    signature = f"{', '.join(variables)} -> {output}".strip()
    found.tree = {
        "name": "imported",
        **({"lm": models[0]} if models else {}),
        **_metric(tests, output, models, wishes),
        "nodes": {"answer": {"predict": signature, "instructions": texts[0]}},
        **_search(texts, models, len(rows)),
    }
    found.rows = rows
    found.taken += [
        f"{len(texts)} prompt(s)",
        f"{len(rows)} test(s) as rows",
        *(f"provider {_name(m)}" for m in models),
    ]
    found.guessed.append("a prompt is instructions here, and its variables follow as lines: the text sent differs")
    if not models:
        found.guessed.append("the language model: bundled/nano; no provider could be taken")
    return found


def _metric(tests: Tests, output: str, models: list[Any], wishes: Wishes) -> dict[str, Any]:
    """Return the metric, and the model of the role judge if there is a rubric."""
    if wishes.metric:
        return {"metric": wishes.metric}
    if tests.rubrics:
        told = "The answer meets the criteria that stand as the reference."
        judge: dict[str, Any] = {"judge": {"field": output, "rubric": told, "target": tests.field}}
        return {"metric": judge, "roles": {"judge": models[0] if models else "bundled/nano"}}
    if tests.equal:
        return {"metric": f"exact_match({output}, target={tests.field})"}
    return {"metric": f"assertions({output}, asserts={tests.field})"}


def _search(texts: list[str], models: list[Any], rows: int) -> dict[str, Any]:
    """Return several prompts and models as alternatives to try."""
    domains: dict[str, Any] = {}
    if len(texts) > 1:
        domains["nodes.answer.instructions"] = texts
    if len(models) > 1:
        domains["nodes.answer.lm"] = models
    tried = max(1, len(texts)) * max(1, len(models))
    more = {"search": domains, "optimize": [{"random": {"trials": 2 * tried}}]} if domains else {}
    return {**more, "budget": {"calls": max(200, 4 * rows * (tried + 1))}}


def _instructions(prompt: str) -> str:
    """Return a prompt as instructions, with variables by name, but not at its end, where they follow as lines."""
    text = re.sub(r"(?m)^[^\n{]{0,40}\{\{\s*\w+\s*\}\}\s*$", "", prompt) if prompt.count("\n") else prompt
    return VARIABLE.sub(lambda m: f"<{m[1]}>", text if text.strip() else prompt).strip()


def _prompts(value: Any, folder: Path, found: Imported) -> Iterator[str]:
    """Yield the texts of prompts that are texts, or text files in the folder."""
    for prompt in as_list(value):
        label = str(prompt.get("label") or prompt.get("id") or "") if is_dict(prompt) else ""
        leave_keys(found, f"prompt '{label}'", prompt, ("label", "raw", "id"))
        text = prompt.get("raw") or prompt.get("id") if is_dict(prompt) else prompt
        if not isinstance(text, str):
            found.left.append(f"a prompt of the form {str(prompt)[:60]}")
            continue
        for one in _texts(text, folder, found):
            body = _chat(one, found)
            if _TEMPLATE.search(VARIABLE.sub("", body)):
                found.left.append(f"prompt '{label or body[:40]}': a template with more than {{{{name}}}}")
            else:
                yield body


def _texts(text: str, folder: Path, found: Imported) -> list[str]:
    if not text.startswith("file://") and not _FILE.fullmatch(text):
        return [text]
    file = safe_file(text, folder, _PROMPT_FILES, found)
    if file is None:
        return []
    content = read_data(file).decode(errors="replace")
    return [p.strip() for p in re.split(r"(?m)^---$", content) if p.strip()] if file.suffix == ".txt" else [content]


def _chat(text: str, found: Imported) -> str:
    """Return the messages of a chat as one text."""
    if not text.lstrip().startswith(("[", "-")):
        return text
    messages = parsed(text)
    if not (is_list(messages) and messages and all(is_dict(m) and "role" in m for m in messages)):
        return text
    if len(messages) > 1:
        found.guessed.append("the messages of a chat prompt are one text here")
    return "\n".join(str(m.get("content", "")) for m in messages)


def _models(value: Any, found: Imported) -> list[Any]:
    """Return the providers that are models here."""
    models: list[Any] = []
    for provider in as_list(value):
        if is_dict(provider) and len(provider) == 1 and "id" not in provider:  # {id: {settings}}
            name, settings = next(iter(provider.items()))
            provider = {"id": name, **(settings if is_dict(settings) else {})}
        name = str(provider.get("id", "")) if is_dict(provider) else str(provider)
        leave_keys(found, f"provider {name}", provider, ("id", "config", "label"))
        config = provider.get("config") if is_dict(provider) else None
        model = _model(name)
        if model is None:
            found.left.append(f"provider {name}: no model here (code, a server of its own, or unknown)")
            continue
        settings = config if is_dict(config) else {}
        kept = {k: settings[k] for k in ("temperature", "max_tokens") if isinstance(settings.get(k), int | float)}
        found.left += [f"{key} of provider {name}" for key in settings if key not in kept]
        models.append({"model": model, **kept} if kept else model)
    return models


def _model(name: str) -> str | None:
    provider, mark, rest = name.partition(":")
    if provider not in _PROVIDERS or not mark:
        return None
    first, _, model = rest.partition(":")
    rest = model if first in _INTERFACES and model else rest
    return f"{_PROVIDERS[provider]}/{rest}" if rest and rest not in _INTERFACES else None


def _name(model: Any) -> str:
    return str(model["model"]) if isinstance(model, Mapping) else str(model)
