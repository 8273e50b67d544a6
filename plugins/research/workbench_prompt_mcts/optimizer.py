"""Monte Carlo tree search over prompts with error feedback.

Source: PromptAgent (Wang et al., arXiv 2310.16427, section 3, and its public implementation). Departures, with reasons
in the README: the backed-up value does not grow with depth unless `backup: sum` asks for it; closed branches are not
visited again; a clearly worse child is stopped early; and the final pick is made on val, which the search never sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pydantic import Field

from workbench import BudgetSpent, Evaluation, Example, Optimizer, Patch, Study, Workflow
from workbench.study import paired_race, score_of
from workbench.workflow import learnable_addresses, text_at
from workbench_kit.prompting import (
    Proposer,
    finalists,
    message_at,
    one_of_each_message,
    prompt_in_use,
    room_for,
    runs_left,
    show_results,
)
from workbench_kit.searching import Backup, Node, back_up, select, uct
from workbench_prompt_mcts import prompts

#: A workflow as scored on the guide rows; its action is the address of the prompt that differs from the parent's.
State = Node[Evaluation]

#: Down to this depth no branch is closed for a low reward: as in PromptAgent (arXiv 2310.16427).
MIN_DEPTH = 2
#: What a path backs up of its rewards. The original's is their sum.
BACKUP: Backup = "max"
#: Characters of examples in a prompt.
CHARS = 4000


class PromptMCTS(Optimizer):
    """Searches instructions as a tree: a child is its parent rewritten after feedback on what went wrong.

    The role `proposer` writes feedback and instructions. Children are scored on rows of train; the best of them then
    have to win on the whole of val.
    """

    rounds: int = Field(12, ge=1, le=1000, description="rounds of selecting, expanding, simulating, backing up")
    width: int = Field(2, ge=1, le=16, description="children of a state")
    depth: int = Field(8, ge=1, le=64, description="maximum number of successive rewrites")
    batch: int = Field(10, ge=1, le=256, description="number of train rows for the feedback of a child")
    rows: int | None = Field(
        None,
        ge=2,
        le=1024,
        description="training rows on which children are scored; "
        "default: a fiftieth of what the budget pays for, 8 to 48",
    )
    temperature: float = Field(0.8, ge=0, le=2, description="of the proposer")

    def reads_search(self) -> bool:
        return False

    async def optimize(self, study: Study) -> Workflow:
        addresses = one_of_each_message(study.best, learnable_addresses(study.best, "text"))
        most = self.rows or int(min(48, max(8, runs_left(study) / 50)))
        rows = study.rng.sample(list(study.train), len(study.train))
        guide = rows[: min(most, len(rows) // 2)]
        if addresses and guide and study.affords(study.best, guide):
            search = _Search(self, study, addresses, guide, rows[len(guide) :])
            evaluation = await study.evaluate(study.best, guide)
            root = State(evaluation, evaluation.score)
            with suppress(BudgetSpent):  # a proposal may not fit where the short answers of val still do
                await search.grow(root)
            await search.decide(root)
        return study.best


class _Search:
    def __init__(
        self,
        settings: PromptMCTS,
        study: Study,
        addresses: Sequence[str],
        guide: Sequence[Example],
        lessons: Sequence[Example],
    ):
        self.settings, self.study, self.addresses, self.guide, self.lessons = settings, study, addresses, guide, lessons
        self.proposer = Proposer(study, settings.temperature)
        self.finalists = finalists(study)
        self.seen = {study.best.hash}
        self.made = 0

    async def grow(self, root: State) -> None:
        for _ in range(self.settings.rounds):
            leaf = select(root, uct)
            if leaf is None or not self.affords_child(leaf):
                return
            back_up((await self.simulated(root, leaf)).path, BACKUP)

    async def simulated(self, root: State, node: State) -> State:
        """The end of a greedy descent from a state: each step expands, and continues from the best child."""
        while True:
            best_before = max(s.state.score for s in root.walk())
            await self.expand(node)
            open_children = [c for c in node.children if not c.closed]
            if not open_children:
                return max(node.children, key=lambda c: c.state.score, default=node)
            node = max(open_children, key=lambda c: c.state.score)
            early = node.depth > MIN_DEPTH and node.state.score > best_before
            if early or not self.affords_child(node):
                return node

    async def expand(self, node: State) -> None:
        """Add `width` children, in at most twice as many tries. Without a new one the state is closed."""
        before = len(node.children)
        for _ in range(2 * self.settings.width):
            if len(node.children) - before == self.settings.width or not self.affords_child(node):
                break
            child = await self.child(node)
            if child is not None:
                child.closed = self.terminal(child)
        node.closed = len(node.children) == before

    def terminal(self, node: State) -> bool:
        path, least = node.path, MIN_DEPTH
        weak = node.depth > least and node.state.score < (path[0].state.score + path[-2].state.score) / 2
        return node.depth >= self.settings.depth or weak or not node.state.complete

    async def child(self, parent: State) -> State | None:
        """A new child, rewritten in one of its prompts; None without a usable or new answer."""
        study = self.study
        batch = study.rng.sample(list(self.lessons), min(self.settings.batch, len(self.lessons)))
        results = (await study.evaluate(parent.state.workflow, batch, traces=True)).results
        texts = {a: text_at(parent.state.workflow, a) for a in self.addresses}
        used = [a for a, text in texts.items() if prompt_in_use(a, text, results)]
        if not used:
            return None
        address = used[self.made % len(used)]
        self.made += 1
        scored = [r for r in results if r.score is not None]
        chosen = [r for r in scored if score_of(r) < 1] or scored
        asked = prompts.feedback(parent.state.workflow, address, chosen, CHARS)
        advice = await self.proposer.ask(asked, self.made)
        tried = [(message_at(s.state.workflow, address), s.state.score) for s in parent.path[:-1]]
        evidence = show_results(chosen, CHARS)
        made = await self.proposer.rewrite(
            parent.state.workflow,
            address,
            self.made,
            evidence=evidence,
            advice=advice or "",
            tried=tried,
            made=[text for text, _ in tried],
        )
        if not made:
            return None
        workflow = parent.state.workflow.patched(Patch(made, note=f"rewritten, depth {parent.depth + 1}"))
        if workflow.hash in self.seen:
            return None
        self.seen.add(workflow.hash)
        race = paired_race(parent.state.scores)
        evaluation = await study.evaluate(workflow, self.guide, race=race)
        return parent.add(evaluation, evaluation.score, action=address)

    def affords_child(self, parent: State) -> bool:
        """Return True if a child can be paid for, and after it the finalists on val; two rows stand for the
        proposer."""
        final = list(self.study.val) * self.finalists
        rows = [*self.guide, *self.lessons[: self.settings.batch], *self.guide[:2], *final]
        return self.study.affords(parent.state.workflow, rows) and room_for(
            self.study, len(rows), 2 * (1000 + CHARS // 3)
        )

    async def decide(self, root: State) -> None:
        """Evaluate the best states on the whole of val, which alone makes a winner."""
        better = [s for s in root.walk() if s is not root and s.state.complete and s.state.score >= root.state.score]
        for node in sorted(better, key=lambda s: -s.state.score)[: self.finalists]:
            if not self.study.affords(node.state.workflow):
                return
            await self.study.evaluate(node.state.workflow, race=True)
