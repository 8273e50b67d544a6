"""The optimizer `memory`: fills a store from traces, curates and protects it, and searches for the best store.

Sources: self-generated examples with selection of single ones and of whole databases (Sarukkai et al., arXiv
2505.00234); a case bank with learned retrieval (Memento, arXiv 2508.16153); causal insights rewritten after each trial
(CLIN, arXiv 2310.10134); preferences from edits (CIPHER, arXiv 2404.15269). Departures, with reasons in the README: one
store for all four; stores compete on val instead of the training tasks that they grew from; labelled rows may fill the
store as well; a store's policy and number of entries vary with its content; and harmful entries are quarantined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field

from workbench import Evaluation, Optimizer, Patch, Study, Workflow
from workbench.base.hashing import digest
from workbench.errors import SpecError
from workbench.study import score_of
from workbench.workflow import EXCHANGE, node_at
from workbench_kit.files import FilePath
from workbench_kit.prompting import Proposer
from workbench_memory import prompts as lessons
from workbench_memory.entry_log import Bank, find_sites
from workbench_memory.learned_retrieval import fit_weights
from workbench_memory.shared_store import add_shared, share

Kind = Literal["examples", "cases", "insights", "preferences"]
Policy = Literal["lexical", "learned", "utility", "recent", "embedding"]

#: Stores evaluated in a trial, and kept between trials.
POPULATION = 4
#: Inputs of val that must have seen entries before these are judged.
MIN = 4
#: Most causal statements.
INSIGHTS = 8
#: Corrected p-value below which entries that do harm on val are quarantined and statements weakened.
QUARANTINE = 0.05
#: Characters of traces in a prompt of the proposer.
CHARS = 6000
MARGIN = 0.1  # utilities within this margin below the average may be chance


class Memory(Optimizer):
    """Builds a memory: the store of `recall` nodes, or else the demos of every node that takes them.

    In each of a few trials it runs the best workflow on train, records what happened, and evaluates some stores on val.
    """

    kinds: list[Kind] = Field(
        ["examples", "cases", "insights", "preferences"],
        description="what to build; cases, insights and preferences need a recall node",
    )
    policies: list[Policy] = Field(
        ["lexical", "utility", "learned"],
        min_length=1,
        description="retrieval policies to compare, in this order; demos support lexical and utility (the same "
        "for all inputs); embedding needs a recall node with an embedder",
    )
    k: int = Field(8, ge=1, le=64, description="maximum number of entries to show")
    size: int = Field(
        200, ge=1, le=5000, description="maximum number of entries in a store; those of the highest utility stay"
    )
    trials: int = Field(3, ge=1, le=100, description="trials: passes over train, each followed by stores to try on val")
    batch: int = Field(60, ge=1, le=1000, description="training rows in a pass")
    threshold: float = Field(1.0, gt=0, le=1, description="least score of a success")
    edited: str = Field("", description="field of train with the user's own version of the answer, for preferences")
    edits: int = Field(
        8, ge=1, le=1000, description="maximum number of edits to learn from; each is a call of the proposer"
    )
    temperature: float = Field(0.0, ge=0, le=2, description="of the proposer")
    shared: FilePath = Field(
        "",
        description="file (.jsonl) of entries that runs share: a run begins with them, and adds those of its winner; "
        "needs a recall node",
    )

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        banks = [Bank(site) for site in find_sites(study.workflow)]
        if banks and study.train:
            recalls = [bank for bank in banks if bank.site.recall]
            if self.shared and (count := await add_shared(study, self.shared, recalls)):
                study.log(f"{count} entries of {self.shared} are known from earlier runs", entries=count)
            await _Search(self, study, banks).run()
            if self.shared and (count := share(study, self.shared, recalls)):
                study.log(f"{count} entries were added to {self.shared}", entries=count)
        return study.best

    async def ready(self, study: Study) -> None:
        if self.shared and not any(site.recall for site in find_sites(study.workflow)):
            raise SpecError(
                "`shared` is for entries of a recall node, and there is none",
                hint='Write one, e.g. recall: "question -> notes", or remove `shared`.',
                path=("shared",),
            )


@dataclass(frozen=True)
class Plan:
    """A store to evaluate: the keys of its entries, and their retrieval."""

    keys: tuple[str, ...]
    policy: str
    k: int


Store = tuple[Plan, ...]  # one plan for each bank
Insights = tuple[tuple[str, ...], float | None]  # the keys of a list, and the score of the first store that held it


@dataclass
class _Search:
    """A run of the optimizer."""

    settings: Memory
    study: Study
    banks: list[Bank]
    population: list[tuple[bool, float, Store]] = field(default_factory=list)  # the best one first
    tried: set[str] = field(default_factory=set)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    lists: dict[str, list[Insights]] = field(default_factory=dict)  # by the address of a bank
    edits: set[tuple[str, str]] = field(default_factory=set)  # address and row
    explored: int = 0

    async def run(self) -> None:
        s, study = self.settings, self.study
        for bank in self.banks:
            bank.add_given(study.workflow)
            if bank.insights:
                self.lists[bank.site.address] = [(bank.insights, None)]
            if "examples" in s.kinds:
                bank.add_labelled(study)
        if study.best_evaluation is not None:  # already evaluated, so its traces cost nothing
            self._record(await study.evaluate(study.best, traces=True))
        if self._entries():
            await self._try(iter([self._whole(0)]))
        for trial in range(s.trials):
            if self._perfect():
                return
            passed = await self._gather(trial)
            self._curate()
            await self._try(self._generation())
            if not passed:
                return

    # A pass over train

    async def _gather(self, trial: int) -> bool:
        """Run train and record the results. Returns False if the budget does not suffice."""
        s, study = self.settings, self.study
        rows = list(study.train)
        if len(rows) > s.batch:
            rows = study.rng.sample(rows, s.batch)
        workflow = self._explorer() if self._explores(trial) else study.best
        if not study.affords(workflow, [*rows, *study.val]):
            return False
        evaluation = await study.evaluate(workflow, rows, traces=True, replica=trial)
        self._record(evaluation)
        for bank in self.banks:
            node = node_at(workflow, bank.site.address)
            for result in evaluation.results:
                if not result.failure and score_of(result) >= s.threshold:
                    if "examples" in s.kinds:
                        bank.add_success(result, trial, node)
                elif bank.site.recall and "cases" in s.kinds and result.score is not None:
                    bank.add_failure(result, trial)
            if bank.site.recall and "insights" in s.kinds:
                await self._reflect(bank, evaluation, trial)
            if bank.site.recall and "preferences" in s.kinds and s.edited:
                await self._learn_edits(bank, evaluation)
        return True

    def _explores(self, trial: int) -> bool:
        """Return True if a trial explores: every other one, if retrieval is learned. Entries that are never shown
        cannot be judged."""
        learns = "learned" in self.settings.policies and any(b.site.recall for b in self.banks)
        return learns and trial % 2 == 0 and self._entries()

    def _explorer(self) -> Workflow:
        """The workflow with entries drawn at random for each input, independent of their nearness."""
        self.explored += 1
        few = max(1, self.settings.k // 2)  # with fewer entries it is clearer which one helped
        store = tuple(
            replace(plan, policy="random" if bank.site.recall else plan.policy)
            for plan, bank in zip(self._whole(0, few), self.banks, strict=True)
        )
        return self._candidate(store, "explore")

    async def _reflect(self, bank: Bank, trial: Evaluation, number: int) -> None:
        """Rewrite the insights (CLIN). Statements that val contradicts are weakened, then dropped."""
        lists = self.lists.setdefault(bank.site.address, [])
        earlier = [([bank.entries[k]["text"] for k in keys], score) for keys, score in lists]
        against = [bank.entries[key]["text"] for key in bank.contradicted(MIN, QUARANTINE)]
        for statement in against:
            bank.doubts.contradict(statement)
        text = await self._ask(lessons.insights_messages(trial, earlier, INSIGHTS, CHARS, against))
        now = [bank.entries[k]["text"] for k in bank.insights if bank.entries[k]["source"] != "user"]
        statements = bank.doubts.settle(lessons.read_insights(text, INSIGHTS) or now)
        if statements != now:
            bank.insights = tuple(bank.add("insight", f"trial:{number}", {}, {}, line) for line in statements)
            lists.append((bank.insights, None))

    async def _learn_edits(self, bank: Bank, trial: Evaluation) -> None:
        """A preference for each answer that a user has rewritten (CIPHER)."""
        s, name = self.settings, bank.site.outputs[0] if bank.site.outputs else ""
        for result in trial.results:
            if len(self.edits) >= s.edits:
                return
            edited, draft = result.example.get(s.edited), result.prediction.get(name)
            context = {n: result.example[n] for n in bank.site.inputs if n in result.example}
            row = (bank.site.address, result.example.id)
            if row in self.edits or not edited or draft is None or str(edited) == str(draft):
                continue
            self.edits.add(row)
            messages = lessons.preference_messages(context, str(draft), str(edited), CHARS)
            preference = lessons.read_preference(await self._ask(messages))
            if preference:
                bank.add("preference", f"user:{result.example.id}", context, {}, f"The user prefers: {preference}")

    async def _ask(self, messages: list[dict[str, str]]) -> str:
        return await Proposer(self.study, self.settings.temperature, max_tokens=800).ask(messages) or ""

    # Stores

    def _entries(self) -> bool:
        return any(bank.entries for bank in self.banks)

    def _curate(self) -> None:
        s = self.settings
        for bank in self.banks:
            bank.curate()
            if bank.site.recall and "learned" in s.policies:
                self.weights[bank.site.address] = fit_weights(bank.pairs())

    def _isolate(self) -> bool:
        """Quarantine harmful entries. Returns whether there were any."""
        before = sum(len(bank.quarantine) for bank in self.banks)
        for bank in self.banks:
            bank.isolate(MIN, QUARANTINE)
        return sum(len(bank.quarantine) for bank in self.banks) > before

    def _policies(self, bank: Bank) -> list[str]:
        """The retrieval policies that the site supports and that are usable by now."""
        there = list(self.settings.policies)
        if not bank.site.recall:
            there = [p for p in there if p == "utility" or (p == "lexical" and bank.site.retrieves)] or ["utility"]
        embeds = bank.site.recall and self.study.workflow.get(bank.site.sibling("embedder"), None) is not None
        usable = {"learned": bool(self.weights.get(bank.site.address)), "embedding": embeds}
        return [p for p in there if usable.get(p, True)] or ["lexical"]

    def _whole(self, number: int, k: int = 0, without: str = "") -> Store:
        """The store of all entries that are not quarantined, with policy number `number`, less the kind `without`."""
        plans = []
        for bank in self.banks:
            policies = self._policies(bank)
            keys = [
                key
                for key, entry in bank.entries.items()
                if key not in bank.quarantine
                and entry["kind"] != without
                and (entry["inputs"] or key in bank.insights or entry["source"] == "user")
            ]
            best = sorted(keys, key=lambda key: -bank.entries[key]["utility"])[: self.settings.size]
            kept = set(best)
            plans.append(
                Plan(
                    tuple(key for key in keys if key in kept),
                    policies[min(number, len(policies) - 1)],
                    k or self.settings.k,
                )
            )
        return tuple(plans)

    def _generation(self) -> Iterator[Store]:
        """The stores of a trial: all entries, with each policy and without each kind, then copies of the best store.

        The copies replace the worst (population based, arXiv 2505.00234).
        """
        k = self._best_k()
        for number in range(max(len(self._policies(bank)) for bank in self.banks)):
            yield self._whole(number, k)
        kinds = {entry["kind"] for bank in self.banks for entry in bank.entries.values()}
        for kind in ("insight", "case", "preference") if len(kinds) > 1 else ():
            if kind in kinds:
                yield self._whole(0, k, without=kind)
        for _ in range(2 * POPULATION):
            yield self._perturbed()

    def _best_k(self) -> int:
        return self.population[0][2][0].k if self.population else self.settings.k

    def _perturbed(self) -> Store:
        """A copy of the best store with entries removed and restored, another k, or another policy.

        With retrieval, only entries below the average utility are removed: the others do no harm. If all inputs see the
        same entries, any may be replaced.
        """
        rng = self.study.rng
        parent = self.population[0][2] if self.population else self._whole(0)
        plans = []
        for plan, bank, whole in zip(parent, self.banks, self._whole(0), strict=True):
            utilities = [bank.entries[key]["utility"] for key in whole.keys]
            average = sum(utilities) / max(1, len(utilities))
            fixed = not bank.site.recall and plan.policy != "lexical"
            inside, keys = set(plan.keys), []
            for key, utility in zip(whole.keys, utilities, strict=True):
                out = 0.3 if fixed else min(0.5, 2 * max(0.0, average - utility - MARGIN))
                if not bank.entries[key]["inputs"]:  # always shown: its utility only reflects its trial
                    out = 0.0
                if (rng.random() >= out) if key in inside else (rng.random() < 0.3):
                    keys.append(key)
            k = min(self.settings.k, max(1, plan.k + rng.choice((-2, -1, 0, 1, 2))))
            policy = rng.choice(self._policies(bank)) if rng.random() < 0.25 else plan.policy
            plans.append(Plan(tuple(keys) or whole.keys, policy, k))
        return tuple(plans)

    async def _try(self, stores: Iterator[Store]) -> None:
        """Evaluate on val up to `POPULATION` stores that are new, and keep the best.

        When entries are quarantined, the remaining store is evaluated next.
        """
        left = POPULATION
        mended: list[Store] = []
        while left and self._entries() and not self._perfect():
            store = mended.pop() if mended else next(stores, None)
            if store is None:
                return
            mark = self._mark(store)
            if mark in self.tried:
                continue
            candidate = self._candidate(store, self._describe(store))
            if not self.study.affords(candidate):
                return
            left -= 1
            self.tried.add(mark)
            evaluation = await self.study.evaluate(candidate, race=True, traces=True)
            self._record(evaluation)
            self._note_lists(store, evaluation.score)
            self.population.append((evaluation.complete, evaluation.score, store))
            self.population.sort(key=lambda p: p[:2], reverse=True)
            del self.population[POPULATION:]
            if self._isolate():
                mended = [self._whole(0, self._best_k())]

    def _perfect(self) -> bool:
        best = self.study.best_evaluation
        return best is not None and best.score >= 1.0

    def _candidate(self, store: Store, note: str) -> Workflow:
        values: dict[str, Any] = {}
        for plan, bank in zip(store, self.banks, strict=True):
            site, rows = bank.site, [bank.entries[key] for key in plan.keys]
            if site.recall:
                set_aside = [bank.entries[k] for k in bank.quarantine if k not in plan.keys]
                values |= {
                    site.address: [*rows, *set_aside],
                    site.sibling("policy"): plan.policy,
                    site.sibling("k"): plan.k,
                }
                if plan.policy == "learned":
                    values[site.sibling("weights")] = self.weights[site.address]
                if plan.policy == "random":
                    values[site.sibling("seed")] = self.explored
                continue
            if plan.policy != "lexical":  # the same examples for every input: the most useful last
                rows = sorted(rows, key=lambda e: e["utility"])[-plan.k :]
            values[site.address] = [_demo(entry) for entry in rows]
            if site.retrieves:
                values[site.sibling("retrieve")] = plan.k if plan.policy == "lexical" else 0
        return self.study.workflow.patched(Patch(values, note=f"memory: {note}"))

    def _mark(self, store: Store) -> str:
        """A key that is equal for stores with equal prompts: utilities and weights count only if they matter."""
        parts: list[Any] = []
        for plan, bank in zip(store, self.banks, strict=True):
            part: list[Any] = [plan.keys, plan.policy, plan.k]
            part += [[key for key in plan.keys if bank.entries[key].get("exchange")]]
            if plan.policy == "utility":
                part.append([bank.entries[key]["utility"] for key in plan.keys])
            if plan.policy == "learned":
                part.append(self.weights[bank.site.address])
            parts.append(part)
        return digest(parts)

    def _describe(self, store: Store) -> str:
        return "; ".join(
            f"{len(plan.keys)} entries, {plan.k} by {plan.policy}"
            + (f", {len(bank.quarantine)} quarantined" if bank.quarantine else "")
            for plan, bank in zip(store, self.banks, strict=True)
        )

    def _note_lists(self, store: Store, score: float) -> None:
        for plan, bank in zip(store, self.banks, strict=True):
            lists, held = self.lists.get(bank.site.address, []), set(plan.keys)
            lists[:] = [(keys, score if old is None and held >= set(keys) else old) for keys, old in lists]

    def _record(self, evaluation: Evaluation) -> None:
        for bank in self.banks:
            bank.record(evaluation)


def _demo(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as a row of demos."""
    exchange = {EXCHANGE: entry["exchange"]} if entry.get("exchange") else {}
    return {**entry["inputs"], **entry["outputs"], **exchange, "_source": entry["source"]}
