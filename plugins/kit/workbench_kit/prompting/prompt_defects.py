"""Defects of prompts: conflicts of instructions and demos with the signature or the tools, and too few tokens for an
answer.

Rules on words find them, without a model. Each rule matches only unambiguous wording; anything that could be meant
otherwise is ignored, so that a workflow that works has no finding.

One file: the rules share their knowledge of words.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workbench.errors import Defect, DefectKind, suggest
from workbench.workflow import Field, Signature
from workbench_kit.answers import object_shape
from workbench_kit.prompting import plain_adapter as plain

Place = tuple[str | int, ...]
#: Groups of names, used in place: a file may have very many, and none is copied for a node.
Names = Sequence[Collection[str]]

_USE = r"\b(?:use|uses|using|call|calls|calling|invoke|invoking|run|running|try|query)\b"
_QUOTED_NAME = r"[`'\"](?P<name>[A-Za-z_][\w-]*)[`'\"]"
_NAMES = r"(?P<name>[`'\"][A-Za-z_][\w-]*[`'\"](?:(?:, |,? and |,? or )[`'\"][A-Za-z_][\w-]*[`'\"])+)"
_SNAKE = r"[a-z]+(?:_[a-z0-9]+)+"
#: Wording that names a tool, in any node.
_USES = (
    re.compile(rf"(?i){_USE} (?:the )?(?:tool )?{_QUOTED_NAME} tool\b"),
    re.compile(rf"(?i){_USE} the tool (?:named |called )?{_QUOTED_NAME}"),
    re.compile(rf"(?i){_USE} the (?P<name>{_SNAKE}) (?:tool|function)\b"),
)
#: Further wording in the instructions of a node with tools.
_MENTIONS = (
    re.compile(rf"(?i)\bthe {_QUOTED_NAME} tool\b"),
    re.compile(rf"(?i)\btool (?:named |called )?{_QUOTED_NAME}"),
    re.compile(rf"(?i){_USE} the (?P<name>[A-Za-z_][\w-]*) tool\b"),
    re.compile(rf"(?i)\b(?:the |your ){_NAMES} tools\b"),
    re.compile(rf"(?i)\btools:? {_NAMES}"),
    re.compile(r"(?i)\b(?:call|calling|invoke|invoking) `(?P<name>[A-Za-z_]\w*)`"),
    re.compile(rf"(?i:{_USE}) [`'\"]?(?P<name>{_SNAKE})[`'\"]?(?= to\b| first\b|\()"),
    re.compile(rf"(?i:{_USE} (?:the (?:tool|function) )?)[`'\"]?(?P<name>[a-z_]\w*)\("),
)
#: Words that negate a demand: "never use the `delete` tool".
_NEGATED = re.compile(r"(?i)(?:\b(?:not|never|no|cannot|avoid|without|instead of|rather than)\b|n't\b)[^.!?;:]*$")
#: Words before "tool" that are not names.
_NO_NAMES = set(
    "a all an another any appropriate available best correct each every first following given last least listed most "
    "necessary needed next one only other proper provided relevant required right same second single such suitable "
    "that these this those two correct new old internal external own other same".split()
)
#: Maximum number of names examined in one text, so that a hostile one costs no more than reading it.
_MAX_NAMES = 100
_BUILTINS = {*dir(builtins)}
#: Outputs that hold a call or a plan as text: such instructions describe tools that the node does not call.
_TELLS_OF_TOOLS = re.compile(r"(?i)call|tool|action|function|plan|step|command|code|program|script|sql|query|queries")

_ANSWER = r"\b(?:answer|reply|respond)\b"
#: Words after which a sentence is not about the answer ("answer yes or no questions").
_DONE = r"(?= ?(?:[.;:!,)]|$|(?:if|when|only|depending|and nothing|for each)\b))"
_ONLY = r"(?= ?(?:[.;!,)]|$|(?:only|from|between|and nothing)\b))"
_JSON = re.compile(
    r"(?i)(?:\b(?:answer|reply|respond|return (?:it|them|the (?:answer|result|label))) (?:only )?(?:in|as|with|using)"
    r"|(?:^|[.!?:;] )(?:only )?(?:return|output|give|produce))"
    r" (?:only )?(?:an? |the )?(?:single |valid |strict )*JSON\b"
)
_YES_NO = re.compile(
    rf"(?i){_ANSWER} (?:only )?(?:with )?(?:either |only )*[`'\"]?yes[`'\"]?(?: or |/| / )[`'\"]?no[`'\"]?{_DONE}"
)
_QUOTED = r"[`'\"][^`'\"]{1,60}[`'\"]"
_LISTED = re.compile(
    rf"(?i){_ANSWER} (?:only )?(?:(?:with|as|by) )?(?:only |either )?(?:one of:? )?"
    rf"(?P<list>{_QUOTED}(?:(?:, |,? or |/| / ){_QUOTED})+){_DONE}"
)
_ONE_WORD = re.compile(rf"(?i){_ANSWER} (?:in|with) (?:exactly |only |just )?(?:one|a single) word{_ONLY}")
_NUMBER = re.compile(
    rf"(?i){_ANSWER} (?:with|as) (?:only |just )?(?:an?|one) (?:single |whole )?(?:number|integer){_ONLY}"
)
_SENTENCES = re.compile(
    rf"(?i){_ANSWER} (?:in|with) (?:exactly |only )?(?:an?|one|two|three|a few|full|whole|complete)"
    rf" (?:full |whole |short )?(?:sentences?|paragraphs?){_ONLY}"
)
_FIELD = re.compile(
    r"(?i)\b(?:output field|(?:in|into|to|as|fill|give|return|write|set) the (?:output|field)) "
    r"[`'\"](?P<name>[A-Za-z_]\w*)[`'\"]"
)
_NO_TOOLS = re.compile(r"(?i)\b(?:do not|don't|never) (?:use|call) (?:any |the )?tools? ?(?:[.!;]|$)")


def find_unknown_tools(
    text: str, tools: Mapping[str, str], path: Place, *, known: Names = (), outputs: Collection[str] = ()
) -> Iterator[Defect]:
    """Find tools that instructions name and the node does not have.

    Args:
        text: the instructions.
        tools: callable by the node: descriptions by name. A tool that runs the model's Python can call anything in it.
        path: of the instructions in the node.
        known: other names that the text may mean: fields, nodes, states, arguments.
        outputs: of the node. If one holds a call or a plan, the text may describe tools of others.
    """
    if "python" in tools or (not tools and any(_TELLS_OF_TOOLS.search(name) for name in outputs)):
        return
    text, seen = " ".join(text.split()), set[str]()
    for pattern in (*_USES, *(_MENTIONS if tools else ())):
        for found in pattern.finditer(text):
            behind = text[found.end() : found.end() + 100].lstrip(" `'\"")
            if _is_negated(text, found.start()) or behind.startswith(tuple(tools)):  # the browser tool search_web
                continue
            for name in re.findall(r"[A-Za-z_][\w-]*", re.sub(r"\b(?:and|or)\b", "", found["name"])):
                if name in seen or len(seen) == _MAX_NAMES:
                    continue
                seen.add(name)
                if name.lower() in _NO_NAMES or name in _BUILTINS or _is_meant(name, tools, known):
                    continue
                has = f"only {', '.join(sorted(tools))}" if tools else "no tools"
                hint = "Give it the tool (an `agent` has tools), or leave the sentence out."
                message = f"the instructions name the tool '{name}', and the node has {has}"
                yield Defect(DefectKind.UNKNOWN_TOOL, message, suggest(name, tools) if tools else hint, path)


def _is_meant(name: str, tools: Mapping[str, str], known: Names) -> bool:
    """Return True if a word may stand for an existing tool, by its name or its description, or for something else."""
    word, parts = _letters(name), re.findall(r"[a-z0-9]+", name.lower())
    if any(name in group or name.lower() in group for group in known):
        return True
    for tool, description in tools.items():
        words = re.findall(r"[a-z0-9]+", f"{tool} {description}".lower().replace("_", " "))
        if word in _letters(tool) or _letters(tool) in word or all(any(w.startswith(p) for w in words) for p in parts):
            return True
    return False


def _is_negated(text: str, start: int) -> bool:
    return _NEGATED.search(text[max(0, start - 60) : start]) is not None


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def find_contradictions(
    text: str,
    signature: Signature,
    path: Place,
    *,
    adapter: str = "plain",
    tools: Collection[str] = (),
    known: Names = (),
) -> Iterator[Defect]:
    """Find demands of instructions that the signature does not allow.

    Args:
        text: the instructions.
        signature: of the node, with `reasoning` if requested.
        path: of the instructions in the node.
        adapter: json and xml request their own forms.
        tools: callable by the node.
        known: names that may be meant if the text names a field.
    """

    def found(message: str, hint: str) -> Defect:
        return Defect(DefectKind.CONTRADICTION, message, hint, path)

    text, outputs = " ".join(text.split()), signature.outputs
    shown = ", ".join(f.name for f in outputs)
    closed = all(field.closed for field in outputs)
    if _demanded(_JSON, text) and adapter == "plain" and not any(_structured(f) for f in outputs):
        if closed or len(outputs) > 1:
            yield found(
                f"the instructions ask for JSON, and the answer is read as {_form(outputs)}",
                "Leave the form out: the signature gives it. For JSON write an output of an object type.",
            )
    yield from _wrong_values(text, outputs, found)
    if names := [n for n in (m["name"] for m in _FIELD.finditer(text)) if not any(n in group for group in known)]:
        fields = [f.name for f in (*signature.inputs, *outputs)]
        if names[0] not in fields and not any(_structured(f) for f in outputs):
            yield found(
                f"the instructions ask for the field '{names[0]}', and the outputs are {shown}",
                f"{suggest(names[0], [f.name for f in outputs])} Or add it to the signature.",
            )
    if tools and _NO_TOOLS.search(text):
        yield found(
            f"the instructions forbid tools, and the node has {', '.join(sorted(tools))}",
            "Leave one of them out: without tools, a `predict` node costs one call.",
        )


def _wrong_values(text: str, outputs: Sequence[Field], found: Any) -> Iterator[Defect]:
    """Find values and lengths that the type of the only output does not allow."""
    if len(outputs) != 1:
        return
    field = outputs[0]
    allowed = {_plain(value) for value in field.allowed} | ({"yes", "no"} if field.type is bool else set())
    values = ", ".join(map(plain.as_text, field.allowed))
    hint = "Say which value means what, with the values of the signature; or change the signature."
    if _demanded(_YES_NO, text) and field.closed and not {"yes", "no"} & allowed and not {"true", "false"} & allowed:
        said = f"one of {values}" if values else "a number"
        yield found(f"the instructions ask for yes or no, and '{field.name}' is {said}", hint)
    for listed in _LISTED.finditer(text) if field.values else ():
        if _is_negated(text, listed.start()):
            continue
        named = [_plain(value) for value in re.findall(_QUOTED, listed["list"])]
        if wrong := [value for value in named if value not in allowed]:
            yield found(f"the instructions ask for '{wrong[0]}', and '{field.name}' is one of {values}", hint)
            return
    if _demanded(_ONE_WORD, text) and (
        _structured(field) or (field.values and all(" " in str(v) for v in field.values))
    ):
        yield found(f"the instructions ask for one word, and '{field.name}' is {_type(field)}", hint)
    if _demanded(_NUMBER, text) and (
        (field.values and not any(re.search(r"\d", str(v)) for v in field.values))
        or _structured(field)
        or field.type is bool
    ):
        yield found(f"the instructions ask for a number, and '{field.name}' is {_type(field)}", hint)
    if _demanded(_SENTENCES, text) and field.closed and not any(" " in str(value) for value in field.values):
        yield found(f"the instructions ask for sentences, and '{field.name}' is {_type(field)}", hint)


def find_wrong_demos(demos: Sequence[Mapping[str, Any]], signature: Signature) -> Iterator[Defect]:
    """Find demos that show a value which the signature does not allow, or that misspell an input."""
    known = [field.name for field in (*signature.inputs, *signature.outputs)]
    for number, demo in enumerate(demos):
        told = next((text for field in signature.outputs if (text := _wrong_value(field, demo.get(field.name)))), "")
        others = [key for key in demo if key not in known and not str(key).startswith("_")]
        missing = [field.name for field in signature.inputs if field.name not in demo]
        if missing and others:
            told = f"a demo has '{others[0]}', which is not a field, and no '{missing[0]}'"
        if told:
            hint = "Correct the demo: the model copies it."
            yield Defect(DefectKind.CONTRADICTION, told, hint, ("demos", number))


def _wrong_value(field: Field, value: Any) -> str:
    """Explain what is wrong with the value of a demo; empty if nothing is."""
    if value is None or (not field.values and field.type not in (bool, int, float)):
        return ""
    shown = f"a demo gives '{field.name}' as {plain.as_text(value)[:60]!r}, which is"
    if field.values:
        right = _plain(value) in {_plain(one) for one in field.values}
        return "" if right else f"{shown} none of {', '.join(map(plain.as_text, field.values))}"
    try:
        TypeAdapter(field.type).validate_python(value)
    except ValidationError:
        return f"{shown} not {_type(field)}"
    return ""


def fewest_tokens(text: str) -> int:
    """Return a token count that hardly any tokenizer undercuts for a text: one per eight letters of a word."""
    return sum(-(-len(word) // 8) for word in re.findall(r"[^\W_]+", text))


def tokens_of_answer(signature: Signature, *, labels: bool = False) -> int:
    """Return the minimum number of tokens of an answer in the plain form, with the longest of the allowed values.

    labels: whether the first value, too, is written after its name, as agents are asked to.
    """
    total = 0
    for number, field in enumerate(signature.outputs):
        total += fewest_tokens(field.name) if labels or number else 0
        shape = object_shape(field.type)
        values = [fewest_tokens(plain.as_text(value)) for value in field.allowed]
        total += max(values, default=fewest_tokens(shape) if shape else 1 if field.closed else 2)
    return total


def tokens_of_call(tool: str, arguments: Collection[str]) -> int:
    """Return the minimum number of tokens of a call in words: call: {"tool": NAME, "arguments": {ARGUMENT: ...}}."""
    return fewest_tokens(" ".join(["call tool", tool, "arguments", *arguments])) + len(arguments)


def find_few_tokens(limit: int | None, needed: int, what: str, path: Place) -> Iterator[Defect]:
    """Report a limit below the needed tokens. what: the text that needs them, for the message."""
    if limit is not None and limit < needed:
        yield Defect(
            DefectKind.FEW_TOKENS,
            f"max_tokens is {limit}, and {what} can take {needed} or more: it is cut",
            f"Raise it, e.g. to {max(16, 2 * needed)}, or leave it out.",
            path,
        )


def _demanded(pattern: re.Pattern[str], text: str) -> bool:
    return any(not _is_negated(text, found.start()) for found in pattern.finditer(text))


def _structured(field: Field) -> bool:
    """Return True if values are lists, objects or of an unknown type."""
    return not field.closed and field.type is not str


def _type(field: Field) -> str:
    if field.values:
        return f"one of {', '.join(map(plain.as_text, field.values))}"
    name = getattr(field.type, "__name__", "") if isinstance(field.type, type) else str(field.type)
    return f"of type {name.removeprefix('typing.')}"


def _form(outputs: Sequence[Field]) -> str:
    if len(outputs) == 1:
        return _type(outputs[0])
    return f"lines, one for each of {', '.join(f.name for f in outputs)}"


def _plain(value: Any) -> str:
    return re.sub(r"[\s_-]+", " ", plain.as_text(value).strip().strip("`'\"").strip().lower())
