"""POAD: policy optimization with action decomposition (Wen et al., arXiv 2405.15821).

Read: the authors' repository (github.com/morning9393/ADRL at 5ec1aa5). As there (`language_buffer.py`, TPPO): within a
turn the error is v' - v and the estimate decays by lambda alone; at its end the error is r + gamma v' - v, and it
decays by gamma times lambda; both are 0.95; ratio and value are clipped at 0.2; the value is a head of 1024 and 512
over the base model with its adapter disabled, at 5e-5; one epoch of 4 minibatches; advantages have mean 0 and deviation
1. Departures: no bonus for entropy (theirs 0.01); a step whose estimate of the KL is above 0.02 is not left out;
advantages are normalised over the step, theirs over each part of a minibatch.
"""

from __future__ import annotations

from workbench_training.extension import Paper, Preset

PAPER = Paper(
    presets={
        "poad": Preset(
            {
                "critic": {"of": "token", "gamma": 0.95},
                "group": (),
                "baseline": "none",
                "scale": "none",
                "aggregate": "token",
            },
            learning={"minibatches": 4},
            source="arXiv 2405.15821, as in its authors' repository (ADRL) at 5ec1aa5; without their entropy bonus",
        )
    }
)
