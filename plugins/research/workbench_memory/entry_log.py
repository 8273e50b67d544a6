"""The log of a store: its entries, the entries shown for each input, and the scores of the answers.

Source of the utilities: retrieval-weighted success of single examples (Sarukkai et al., arXiv 2505.00234).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench import Evaluation, Study, Workflow
from workbench.base.hashing import digest
from workbench.study import Result, score_of
from workbench.task import labelled_demo
from workbench.workflow import EXCHANGE, NodeKind, Span, learnable_addresses, node_at
from workbench_kit.searching import WordIndex
from workbench_memory.causal_claims import Doubts, sign_test_p
from workbench_memory.learned_retrieval import Pair, extract_features
from workbench_memory.leave_one_out import Answer, find_suspect, group_entries
from workbench_memory.node import Entry as StoredEntry
from workbench_memory.word_search import join_fields, scale_scores, split_words

Entry = dict[str, Any]  # the settings of workbench_memory.node.Entry

PRIOR = 2.0  # pseudo-observations with the average score, from which an entry's utility starts


@dataclass(frozen=True)
class Site:
    """The place of a store: the `entries` of a recall node, or the `demos` of another node.

    inputs, outputs: the fields of an example there. path: the node in spans. readers: for a recall inside another node,
    the nodes beside it that read it: its examples are of steps, not of rows.
    """

    address: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    recall: bool
    retrieves: bool
    readers: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return self.address.removeprefix("nodes.").rpartition(".")[0]

    def sibling(self, setting: str) -> str:
        return f"{self.address.rpartition('.')[0]}.{setting}"


def find_sites(workflow: Workflow) -> list[Site]:
    """The stores of recall nodes; without any, the demos of every node that accepts them."""
    sites = []
    for address in learnable_addresses(workflow, "memories"):
        node, beside = node_at(workflow, address), _beside(workflow, address)
        if beside is None:
            sites.append(Site(address, node.inputs, _answered(workflow.enabled_nodes, node.outputs[0]), True, True))
        else:
            readers = tuple(path for path, other in beside.items() if node.outputs[0] in other.inputs)
            sites.append(Site(address, node.inputs, _answered(beside, node.outputs[0]), True, True, readers))
    for address in learnable_addresses(workflow, "demos") if not sites else ():
        node = node_at(workflow, address)
        sites.append(Site(address, node.inputs, node.outputs, False, "retrieve" in node.learnable))
    return sites


def _answered(nodes: Mapping[str, NodeKind], notes: str) -> tuple[str, ...]:
    """The outputs of the nodes that read the notes, which complete an input to an example."""
    readers = [node for node in nodes.values() if notes in node.inputs]
    outputs = [name for node in readers or nodes.values() for name in node.outputs]
    return tuple(dict.fromkeys(name for name in outputs if name != notes))


def _beside(workflow: Workflow, address: str) -> dict[str, NodeKind] | None:
    """The nodes beside an inner node, by their names in spans; None for a node of the workflow."""
    top, *rest = address.removeprefix("nodes.").split(".")[:-1]
    node, path = workflow.enabled_nodes[top], top
    while rest:
        children = node.children()
        name = next(name for name in children if rest[: name.count(".") + 1] == name.split("."))
        rest = rest[name.count(".") + 1 :]
        if not rest:
            return {f"{path}.{other}": child for other, child in children.items()}
        node, path = children[name], f"{path}.{name}"
    return None


@dataclass(frozen=True)
class Shown:
    """An answer: the split and row, the fields looked up by, the keys of the entries shown, and the score."""

    split: str
    row: str
    query: Mapping[str, Any]
    keys: frozenset[str]
    score: float


@dataclass
class Bank:
    """A site's entries by key, in order of arrival, and the log of what was shown."""

    site: Site
    entries: dict[str, Entry] = field(default_factory=dict)
    log: dict[tuple[str, str, frozenset[str]], Shown] = field(default_factory=dict)  # the same seen twice counts once
    quarantine: dict[str, str] = field(default_factory=dict)  # key: the evidence, in words
    insights: tuple[str, ...] = ()  # keys of the newest list
    doubts: Doubts = field(default_factory=Doubts)  # of what the lists may say

    def add(
        self,
        kind: str,
        source: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any] = {},
        text: str = "",
        exchange: Sequence[Any] = (),
    ) -> str:
        """Add an entry and return its key. An existing entry is kept, with its provenance; a labelled row only gains
        the exchange of the first success that has one."""
        key = digest([dict(inputs), dict(outputs), text])
        row = {"kind": kind, "inputs": dict(inputs), "outputs": dict(outputs), "text": text, "source": source}
        entry = self.entries.setdefault(key, _with_defaults(row))
        if exchange and not entry.get("exchange"):
            entry |= {"exchange": list(exchange), "source": source}
        return key

    def add_given(self, workflow: Workflow) -> None:
        """Add the entries of the workflow. Quarantined rows stay excluded."""
        for row in workflow.get(self.site.address, []):
            key = self._key(row)
            if self.site.recall:
                self.entries.setdefault(key, _with_defaults(row))
                if row.get("quarantined"):
                    self.quarantine[key] = row["quarantined"]
            else:
                inputs, outputs = self._parts(row)
                self.add("example", str(row.get("_source", "given")), inputs, outputs, exchange=row.get(EXCHANGE, ()))
        self.insights = tuple(k for k, e in self.entries.items() if not e["inputs"] and k not in self.quarantine)

    def add_labelled(self, study: Study) -> None:
        for example in study.train:
            row = labelled_demo(self.site, example, study.targets)  # type: ignore[arg-type]  (it reads the names only)
            if row is not None:
                inputs, outputs = self._parts(row)
                self.add("example", f"train:{example.id}", inputs, outputs)

    def add_success(self, result: Result, trial: int, node: NodeKind) -> None:
        """Add the steps of a successful run as examples. node: the node at the site."""
        spans = result.trace.spans if result.trace else []
        for span in spans:
            if span.node == self.site.path and not span.error:
                if self.site.readers:
                    outputs, exchange = self._said_next(span, spans), ()
                    if not outputs:
                        continue  # the episode ended here
                elif self.site.recall:
                    outputs, exchange = (
                        {n: result.prediction[n] for n in self.site.outputs if n in result.prediction},
                        (),
                    )
                else:
                    outputs, exchange = dict(span.outputs), node.demo(span).get(EXCHANGE, ())
                self.add("example", f"trial:{trial}:{result.example.id}", span.inputs, outputs, exchange=exchange)

    def _said_next(self, span: Span, spans: Sequence[Span]) -> dict[str, Any]:
        """The outputs of the nodes that read what a recall found, in the same step (Sarukkai et al., arXiv 2505.00234:
        examples are looked up by the situation of each step)."""
        found: dict[str, Any] = {}
        for other in spans:
            if other.node in self.site.readers and other.order[:-1] == span.order[:-1] and not other.error:
                found |= {name: value for name, value in other.outputs.items() if name in self.site.outputs}
        return found

    def add_failure(self, result: Result, trial: int) -> None:
        """Add a failed case with its outcome, unless an example shows the right answer. Not of steps: those of a failed
        run may be right."""
        inputs = {n: result.example[n] for n in self.site.inputs if n in result.example}
        if self.site.readers or not inputs or any(e["inputs"] == inputs for e in self.entries.values()):
            return
        tried = "; ".join(f"{n}: {result.prediction[n]}" for n in self.site.outputs if n in result.prediction)
        why = result.feedback or result.message or ""
        text = f"tried: {tried or 'no answer'} (score {score_of(result):.2f}) {why}"[:300].strip()
        self.add("case", f"trial:{trial}:{result.example.id}", inputs, {}, text)

    def record(self, evaluation: Evaluation) -> None:
        """Log which entries were shown for each answer."""
        workflow = evaluation.workflow
        rows = workflow.get(self.site.address, [])
        node: Any = node_at(workflow, self.site.address)
        keys = [self._key(row) for row in rows]
        for result in evaluation.results:
            if result.trace is None or result.score is None:
                continue
            shown: set[str] = set()
            query: Mapping[str, Any] = {}
            for span in result.trace.spans:
                if span.node == self.site.path:
                    query = span.inputs
                    told = span.notes.get("recalled", ()) if self.site.recall else span.notes.get("demos_shown")
                    if told is None and hasattr(node, "demos_shown"):
                        told = node.demos_shown(span.inputs)
                    shown |= {keys[i] for i in told} if told is not None else set(keys)
            seen = Shown(evaluation.split, result.example.id, query, frozenset(shown), result.score)
            self.log[seen.split, seen.row, seen.keys] = seen

    def pairs(self) -> list[Pair]:
        """The training pairs of learned retrieval: each entry shown for an answer on train, with the answer's score."""
        specific = [key for key, entry in self.entries.items() if entry["inputs"]]
        texts = [join_fields(self.entries[key]["inputs"], self.site.inputs) for key in specific]
        index, words = WordIndex(texts), {k: set(split_words(t)) for k, t in zip(specific, texts, strict=True)}
        found: list[Pair] = []
        for shown in self.log.values():
            if shown.split != "train":
                continue
            query = join_fields(shown.query, self.site.inputs)
            near, query_words = scale_scores(index.scores(query)), split_words(query)
            for number, key in enumerate(specific):
                if key in shown.keys:
                    found.append((extract_features(query_words, words[key], near.get(number, 0.0)), shown.score))
        return found

    def curate(self) -> None:
        """Set the utility of each entry from train: the mean score of answers with it, shrunk to the average."""
        train = [s for s in self.log.values() if s.split == "train" and s.keys]
        if not train:
            return
        average = math.fsum(s.score for s in train) / len(train)
        seen: dict[str, list[float]] = defaultdict(list)
        for shown in train:
            for key in shown.keys:
                seen[key].append(shown.score)
        for key, entry in self.entries.items():
            scores = seen.get(key, [])
            entry["utility"] = round((math.fsum(scores) + PRIOR * average) / (len(scores) + PRIOR), 3)

    def isolate(self, least: int, p: float) -> None:
        """Quarantine the entries that do harm, worst first.

        Only val is evidence, since selection trusts its labels: poisoned rows of train would vouch for each other. An
        answer that saw a quarantined entry is removed from the log, because it says nothing about the other entries
        that it saw. Entries that are always shown cannot be separated from the rest, and are not judged.
        """
        while True:
            out = set(self.quarantine)
            specific = {k: e for k, e in self.entries.items() if e["inputs"] and k not in out}
            answers = [
                Answer(s.row, self._words(s), s.keys & specific.keys(), s.score)
                for s in self.log.values()
                if s.split == "val" and not s.keys & out
            ]
            texts = {k: join_fields(e["inputs"], self.site.inputs) for k, e in specific.items()}
            found = find_suspect(
                answers, group_entries(texts, {k: e["outputs"] for k, e in specific.items()}), least, p
            )
            if found is None:
                return
            for key in found.keys:
                self.quarantine[key] = found.evidence
                self.entries[key] |= {"quarantined": found.evidence}

    def contradicted(self, least: int, p: float) -> list[str]:
        """The newest statements, without the user's own, that made answers to inputs of val worse.

        An answer is compared with answers to the same input that saw the same entries about inputs, so that only
        statements differ. At least `least` inputs must have both.
        """
        specific = {key for key, entry in self.entries.items() if entry["inputs"]}
        courses: dict[tuple[str, frozenset[str]], list[Shown]] = defaultdict(list)
        for shown in self.log.values():
            if shown.split == "val":
                courses[shown.row, shown.keys & specific].append(shown)
        found = []
        for key in self.insights:
            by_row: dict[str, list[float]] = defaultdict(list)
            for (row, _), answers in courses.items():
                with_, without = ([a.score for a in answers if (key in a.keys) == has] for has in (True, False))
                if with_ and without:
                    by_row[row].append(math.fsum(with_) / len(with_) - math.fsum(without) / len(without))
            changes = [math.fsum(d) for d in by_row.values()]
            if len(changes) >= least and sign_test_p(changes) < p and self.entries[key]["source"] != "user":
                found.append(key)
        return found

    def _words(self, shown: Shown) -> frozenset[str]:
        return frozenset(split_words(join_fields(shown.query, self.site.inputs)))

    def _key(self, row: Mapping[str, Any]) -> str:
        if self.site.recall:
            return digest([row.get("inputs", {}), row.get("outputs", {}), row.get("text", "")])
        inputs, outputs = self._parts(row)
        return digest([inputs, outputs, ""])

    def _parts(self, row: Mapping[str, Any]) -> tuple[Entry, Entry]:
        """Inputs and outputs of a row of demos."""
        inputs = {n: row[n] for n in self.site.inputs if n in row}
        return inputs, {n: v for n, v in row.items() if n not in inputs and n not in ("_source", EXCHANGE)}


def _with_defaults(row: Mapping[str, Any]) -> Entry:
    return {**StoredEntry.model_validate({}).model_dump(exclude={"evidence"}), **row}
