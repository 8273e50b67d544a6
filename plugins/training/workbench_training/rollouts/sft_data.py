"""SFT examples: chats that no policy sampled (labels, a teacher, general data), as rows of tokens.

Prompts are rendered with the template of rollouts, and answers as that template writes them after a prompt, so that
training and use see the same text. Some turns of a chat are shown without being learned: errors that a later turn
repairs (AgentRefine, arXiv 2501.01702), or the wrong start onto which a right continuation is spliced (Agent-R, arXiv
2501.11425).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from workbench.lm import content_text
from workbench.spec import Pattern
from workbench.task import Example
from workbench.workflow import Trace, Workflow
from workbench_engine.chat_template import render_chat
from workbench_kit.lms.prefill import join_prefill, split_prefill
from workbench_training.rollouts.token_rows import Row

if TYPE_CHECKING:
    from workbench_training.model.policy import Policy

Chat = list[dict[str, Any]]


@dataclass(frozen=True)
class SFTExample:
    """A chat, and the indices of the assistant's messages that are learned; the rest is context."""

    messages: Chat
    learned: frozenset[int]
    task: str
    agent: str = ""
    reward: float = 1.0


class ChatTokenizer:
    """Chats as token ids, by a checkpoint's tokenizer and template. settings: of the template, as `encode` has them."""

    def __init__(
        self,
        tokenizer: Any,
        ends: Collection[int],
        encode: Callable[[Chat], list[int]],
        settings: Mapping[str, Any] | None = None,
    ):
        self.tokenizer, self.ends, self.encode, self.settings = tokenizer, ends, encode, settings

    def turn(self, before: Chat, answer: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(prompt, answer with its end token): the prompt that a rollout would have, and the answer as it goes on."""
        prompt, text = self.encode(before), answer
        if self.tokenizer.chat_template:
            render = partial(render_chat, self.tokenizer, settings=self.settings)
            start = render(before, add_generation_prompt=True)
            whole = render([*before, {"role": "assistant", "content": answer}])
            said = whole[len(start) :] if whole.startswith(start) else ""
            text = said if answer.strip() in said else answer  # some templates leave thoughts out
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        first = next((i for i, token in enumerate(ids) if token in self.ends), None)
        if first is not None:
            ids = ids[: first + 1]  # a template may write a line's end after it
        elif self.tokenizer.eos_token_id is not None:
            ids = [*ids, self.tokenizer.eos_token_id]
        return tuple(prompt), tuple(ids)


def make_chat_tokenizer(policy: Policy) -> ChatTokenizer:
    generator = policy.generator
    return ChatTokenizer(generator.tokenizer, generator.ends, generator.encode, generator.template_settings)


def find_trained_nodes(workflow: Workflow, address: str) -> list[str]:
    """The nodes whose model is trained: that of the address, or all without a model of their own."""
    if address != "lm":
        return [address.split(".")[1]]
    return [name for name, node in workflow.enabled_nodes.items() if getattr(node.config, "lm", None) is None]


def tokenize_example(lesson: SFTExample, tokens: ChatTokenizer) -> list[Row]:
    """The rows of a chat. A turn whose prompt goes on from the row so far is appended to it, what stands between masked
    out; where the template writes history anew, a row of its own begins, as in rollouts. Rows without a learned token
    are left out."""
    turns = []
    for i, message in enumerate(lesson.messages):
        if message["role"] == "assistant" and i >= min(lesson.learned, default=i + 1):
            prompt, ids = tokens.turn(lesson.messages[:i], content_text(message.get("content")))
            turns.append((prompt, ids, (0.0,) * len(ids), i in lesson.learned))
    return merge_turns(turns, task=lesson.task, agent=lesson.agent, reward=lesson.reward)


def merge_turns(
    turns: Iterable[tuple[Sequence[int], Sequence[int], Sequence[float], bool]],
    *,
    task: str,
    agent: str = "",
    reward: float | None = 1.0,
    rollout: int = 0,
    version: int = 0,
) -> list[Row]:
    """Rows of turns (prompt ids, answer ids, log-probabilities, learned) of one chat."""
    rows: list[Row] = []
    for prompt, ids, logprobs, learned in turns:
        mask = (int(learned),) * len(ids)
        so_far = rows[-1].prompt_ids + rows[-1].token_ids if rows else ()
        if rows and tuple(prompt[: len(so_far)]) == so_far:
            last, between = rows[-1], tuple(prompt[len(so_far) :])
            rows[-1] = Row(
                last.prompt_ids,
                last.token_ids + between + tuple(ids),
                last.mask + (0,) * len(between) + mask,
                last.logprobs + (0.0,) * len(between) + tuple(logprobs),
                reward,
                task,
                rollout,
                agent,
                version=version,
            )
        else:
            rows.append(
                Row(tuple(prompt), tuple(ids), mask, tuple(logprobs), reward, task, rollout, agent, version=version)
            )
    return [row for row in rows if row.drawn]


# Where lessons come from


def label_examples(
    workflow: Workflow, example: Example, labels: Mapping[str, str], nodes: Collection[str]
) -> list[SFTExample]:
    """The worked examples of a row: each node sees the inputs that the row and earlier labels give it (teacher
    forcing).

    labels: field of the row that holds the label of an output, if not one of its name. nodes: those that are trained.
    """
    values: dict[str, Any] = dict(example.fields)
    made = workflow.enabled_nodes
    for node in made.values():
        for output in node.outputs:
            if (place := labels.get(output, output)) in example:
                values[output] = example[place]
    found = []
    for name, node in made.items():
        chat = node.training_chat(values) if name in nodes else None
        if chat:
            found.append(SFTExample(chat, frozenset({len(chat) - 1}), example.id, name))
    return found


def extract_examples(trace: Trace, nodes: Collection[str], errors: Pattern | None = None) -> list[SFTExample]:
    """The chats of a run, by whomever it was answered: each answer once, within the longest chat that holds it.

    errors: an answer whose consequence (the message after it) matches is shown, but not learned.
    """
    found: list[SFTExample] = []
    for span in trace.spans:
        if span.node.split(".")[0] not in nodes:
            continue
        chats: list[tuple[Chat, set[int]]] = []
        for call in span.calls:
            if call.role != "task" or not call.response.text.strip():
                continue  # a native tool call has no text in the student's own form
            before, begun = split_prefill(call.messages)  # words that were put into the model's mouth are its answer's
            asked, answer = [dict(m) for m in before], join_prefill(begun, call.response.text)
            known = chats[-1] if chats and asked[: len(chats[-1][0])] == chats[-1][0] else None
            learned = {*(known[1] if known else ()), len(asked)}
            if known:
                chats.pop()
            chats.append(([*asked, {"role": "assistant", "content": answer}], learned))
        for chat, learned in chats:
            wrong = find_wrong_turns(chat, learned, errors) if errors else set()
            found.append(SFTExample(chat, frozenset(learned - wrong), trace.example, span.agent or span.node))
    return found


def find_wrong_turns(chat: Chat, answers: Collection[int], errors: Pattern) -> set[int]:
    """The answers whose next message tells of an error."""
    return {i for i in answers if i + 1 < len(chat) and errors.search(str(chat[i + 1]["content"]))}


def splice_examples(wrong: SFTExample, right: SFTExample, errors: Pattern, revision: str) -> SFTExample | None:
    """The wrong chat up to its first error and what came of it, and from there the right one (Agent-R).

    What both begin with is kept, and the wrong turns are shown but not learned. revision: words in front of the first
    right answer. None where the wrong chat tells of no error, or where nothing of the right one is left.
    """
    answers = [i for i, m in enumerate(wrong.messages) if m["role"] == "assistant" and i >= _first(wrong)]
    bad = find_wrong_turns(wrong.messages, answers, errors)
    fork = next((i for i, (a, b) in enumerate(zip(wrong.messages, right.messages, strict=False)) if a != b), None)
    if not bad or fork is None or fork < _first(right) or right.messages[fork]["role"] != "assistant":
        return None
    cut = min(bad) + 2  # after the message that tells of the error
    if cut <= fork:
        return None
    rest = [dict(m) for m in right.messages[fork:]]
    rest[0]["content"] = revision + rest[0]["content"]
    before = {i for i in right.learned if i < fork}
    after = {cut + i - fork for i in right.learned if i >= fork}
    return SFTExample([*wrong.messages[:cut], *rest], frozenset(before | after), right.task, right.agent, right.reward)


def _first(lesson: SFTExample) -> int:
    """Where the chat itself begins, after demos: its first answer follows the last message of the first prompt."""
    return min(lesson.learned, default=len(lesson.messages))


def read_general_chats(rows: Sequence[Mapping[str, Any]]) -> list[SFTExample]:
    """Rows {"messages": [...]} of general chats: all answers of the assistant are learned. Raises ValueError."""
    found = []
    for number, row in enumerate(rows):
        messages = row.get("messages")
        if not isinstance(messages, list) or not all(
            isinstance(m, Mapping) and {"role", "content"} <= set(m) for m in messages
        ):
            raise ValueError(f"row {number + 1} of the mixture has no `messages`, a list of {{role, content}}")
        answers = frozenset(i for i, m in enumerate(messages) if m["role"] == "assistant")
        found.append(SFTExample([dict(m) for m in messages], answers, f"general {number}"))
    return found


def sample_general(agent: int, share: float, general: Sequence[Any], rng: random.Random) -> list[Any]:
    """Enough general chats that the agent's own are `share` of the sum; none repeats before all others were used."""
    wanted = round(agent * (1 - share) / share)
    found: list[Any] = []
    while len(found) < wanted and general:
        found += rng.sample(list(general), min(len(general), wanted - len(found)))
    return found


def extract_drawn_rows(trace: Trace, nodes: Collection[str], errors: Pattern, **about: Any) -> list[Row]:
    """The rows of a policy's own run, of exactly the tokens that it drew, without those of answers that went wrong."""
    rows: list[Row] = []
    for span in trace.spans:
        if span.node.split(".")[0] not in nodes:
            continue
        calls = [c for c in span.calls if c.role == "task" and c.response.token_ids is not None]
        turns = []
        for call, after in zip(calls, [*calls[1:], None], strict=True):
            place, r = len(split_prefill(call.messages)[0]) + 1, call.response
            told = str(after.messages[place]["content"]) if after and len(after.messages) > place else ""
            learned = not (told and errors.search(told))
            turns.append(
                (r.prompt_ids or (), r.token_ids or (), r.logprobs or (0.0,) * len(r.token_ids or ()), learned)
            )
        rows += merge_turns(turns, agent=span.agent or span.node, **about)
    return rows
