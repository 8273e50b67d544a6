"""ArCHer: a critic of turns, learned by temporal differences (Zhou et al., arXiv 2402.19446).

Read: the authors' repository (github.com/YifeiZhou02/ArCHer at 1bcbf80 and 7c771a7). As there: the worth q of a turn
becomes its reward and the discounted value v of the next state, the value of a state the worth of the turn that was
drawn there, both by a copy that takes over 0.1 of the critic after each of 50 updates; two estimates of each; a turn's
advantage is min(q) - min(v), on all of its tokens; gamma 0.95; 20 steps train the critic alone. Departures: v is
learned from the turns of this step alone, which this policy drew, where the authors draw new turns for states of their
buffer; the buffer has 4 steps, theirs all of them; a pass uses each turn once, where they draw some; a turn is judged
by the decoder's state after its last token, where theirs encodes question and answer apart by a RoBERTa that is trained
at 1e-5 (here heads alone at 1e-3, the default of their trainer); 1 update of the policy in a step, theirs 3; mean over
tokens, theirs the sum.
"""

from __future__ import annotations

from workbench_training.extension import CriticKind, Paper, Preset

PAPER = Paper(
    presets={
        "archer": Preset(
            {
                "critic": {"of": "turn", "gamma": 0.95, "epochs": 50, "minibatches": 1, "warmup": 20, "rate": 1e-3},
                "group": (),
                "baseline": "none",
                "scale": "none",
                "aggregate": "token",
            },
            source="arXiv 2402.19446, as in its authors' repository at 1bcbf80; the departures are in papers/archer",
        )
    },
    critics={"turn": CriticKind(("v1", "v2", "q1", "q2"), f"{__name__}.turn_critic:TurnCritic", copied=True)},
)
