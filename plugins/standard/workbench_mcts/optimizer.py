"""Tree search over workflows.

Sources: AFlow (Zhang et al., arXiv 2410.10762, and its public code): rounds of selecting a parent, changing one part of
it, evaluating, and storing the outcome as the parent's experience; its soft-mixed selection and its convergence
test. AgentSwift (arXiv 2506.06017): a design space of components, an initial design that covers all pairs, and a
surrogate that ranks children so that only promising ones are evaluated. Departures, with reasons, are in the README.
"""

from __future__ import annotations

from workbench import Study, Workflow
from workbench_kit.searching import Menu, edit_classes
from workbench_mcts.search import Search
from workbench_mcts.settings import Settings


class MCTS(Settings):
    """Searches the structure of a workflow: choices in the design space under `search:`, and edits of the graph.

    A surrogate learns from every evaluation and ranks the proposals; each round evaluates only the most promising one.
    No language model is needed; with `proposals: lm` or `both`, the role `proposer` proposes as well.
    """

    async def optimize(self, study: Study) -> Workflow:
        space = study.space() if study.domains else None
        names = list(edit_classes(self.edits)) if self.edits is not None or space is None else []
        menu = Menu(self.lms, self.tools, self.verifiers)
        if study.affords(study.best):
            search = Search(self, study, space, names, menu)
            try:
                await search.run(self.initial)
            finally:
                search.report()
        return study.best
