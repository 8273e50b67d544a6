"""The proxy reward: the probability that an answer is right, from its text alone.

It picks one of several answers when the workflow runs, where no label is known, and it is the confidence of a cascade
(FrugalGPT, arXiv 2305.05176). BEST-Route (arXiv 2506.22716) fine-tunes a reward model on pairs of answers ranked by
another one; here scores of train are known, so that no second judge is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench_route.features import Features, FeatureSpace
from workbench_route.fitting import fit_predictor
from workbench_route.outcomes import Pick, Row, first_answer, most_frequent
from workbench_route.predictor import Predictor

#: Input and answer, with the share of the other answers that are the same.
SPACE = FeatureSpace(texts=2, extras=1, dims=512)


def answer_features(text: str, answers: Sequence[str | None], position: int) -> Features:
    """Features of one of several answers to an input."""
    own = answers[position]
    others = [answer for i, answer in enumerate(answers) if i != position and answer is not None]
    agreement = sum(answer == own for answer in others) / len(others) if others else 0.0
    return SPACE.extract([text, own or ""], [agreement])


@dataclass(frozen=True)
class Reward:
    """A learned reward of a model's answers."""

    predictor: Predictor

    def confidence(self, text: str, answers: Sequence[str | None], position: int) -> float:
        """The probability that an answer is right; 0 where there is none."""
        if answers[position] is None:
            return 0.0
        return self.predictor(answer_features(text, answers, position))

    def pick(self, text: str, answers: Sequence[str | None]) -> int:
        """The position of the best answer; of equals the first."""
        if len(answers) == 1:
            return 0
        return max(range(len(answers)), key=lambda i: (self.confidence(text, answers, i), -i))


def fit_reward(rows: Sequence[Row], model: str, seed: int) -> tuple[Reward | None, Pick]:
    """Fit the reward of a model's answers.

    Returns:
        The reward, None if no answer is known; and a pick by rewards that have not seen the row. Labels have to be made
        with that: a reward knows the right answers of its own rows by heart. Its agreement is that among all answers of
        the row, also where fewer are drawn.
    """
    places = [
        (number, position)
        for number, row in enumerate(rows)
        for position, sample in enumerate(row.samples[model])
        if sample.answer is not None
    ]
    if not places:
        return None, first_answer
    answers = [[sample.answer for sample in row.samples[model]] for row in rows]
    features = [answer_features(rows[n].text, answers[n], position) for n, position in places]
    wanted = [rows[n].samples[model][position].score for n, position in places]
    predictor, unseen = fit_predictor(features, wanted, SPACE.size, seed, [n for n, _ in places])
    if predictor.constant:
        return Reward(predictor), pick_by({})
    known = {(rows[n].id, position): p for (n, position), p in zip(places, unseen, strict=True)}
    return Reward(predictor), lambda row, _, positions: max(positions, key=lambda i: (known.get((row.id, i), 0.0), -i))


def pick_by(rewards: Mapping[str, Reward]) -> Pick:
    """Choose how to pick answers: by the reward of their model or, where none is learned, by their votes."""

    def pick(row: Row, model: str, positions: Sequence[int]) -> int:
        answers = [row.samples[model][i].answer for i in positions]
        return positions[pick_answer(rewards.get(model), row.text, answers)]

    return pick


def pick_answer(reward: Reward | None, text: str, answers: Sequence[str | None]) -> int:
    """The position of the answer that is taken."""
    if reward is None or reward.predictor.constant:
        return most_frequent(answers)
    return reward.pick(text, answers)
