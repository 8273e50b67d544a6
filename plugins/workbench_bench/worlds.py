"""The planted worlds: in each one a formula gives the probability that a request is answered correctly.

So the best workflow is known, and a winner has a true accuracy without test noise. All worlds label short texts on one
of eight topics; they differ in what pays. Each has a simulated proposer, see `proposer`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from workbench.lm import Request
from workbench.workflow import Workflow
from workbench_bench import functions, routing, topology

TOPICS = 8
PLAIN = "Label it."
INSTRUCTIONS = [
    PLAIN,
    "Label the text.",
    "Read it and label it.",
    "Label it with care.",
    "Give the label.",
    "Say what it is.",
    "Think, then label it.",
    "Label it as an expert.",
]
#: Rules for a topic: the first word is the right one for topic 0, the second for topic 1, and so on.
WORDS = ("colour", "weight", "sound", "origin", "shape", "price", "age", "use")


def demos_of(request: Request) -> list[str]:
    """The inputs of the examples that a request shows."""
    return [str(m["content"]) for m in request.messages if m["role"] == "user"][:-1]


def topic_of(text: str) -> str:
    found = re.search(r"topic\d+", text)
    return found.group() if found else ""


def instruction_of(request: Request) -> str:
    first = request.messages[0]
    return str(first["content"]).split("\n")[0] if first["role"] == "system" else ""


def rules_in(text: str) -> dict[int, str]:
    """The rules that an instruction holds, by topic; of two on one topic the later one counts."""
    return {int(t): word for t, word in re.findall(r"For topic(\d+) go by the (\w+)\.", text)}


def with_rules(rules: Mapping[int, str]) -> str:
    return " ".join([PLAIN, *(f"For topic{t} go by the {word}." for t, word in sorted(rules.items()))])


@dataclass(frozen=True)
class World:
    """A planted problem.

    skill: the probability of a right answer to a request. best: the highest accuracy that any workflow of the search
    space has. null: nothing helps, so nothing may be claimed. ruled: what pays are rules for topics, and the
    simulated proposer writes such rules. nodes: the workflow at the start, if not one step. seeded: the world is
    another one for each seed. speak: what is answered where no label is asked for. truth: the accuracy of a workflow,
    if the skill of one request does not tell. row: a row of data with what this world adds, by its number. lms: skill
    and price of a call of further language models, by name. ceiling: US dollars for a row at most; what counts is then
    the candidate with the best score on val that costs no more there.
    """

    name: str
    what: str
    skill: Callable[[Request], float]
    best: float
    search: Mapping[str, Any] = field(default_factory=dict)
    null: bool = False
    ruled: bool = False
    nodes: Mapping[str, Any] = field(default_factory=dict)
    seeded: Callable[[World, int], World] | None = None
    speak: Callable[[Request], str | None] = lambda request: None
    truth: Callable[[Workflow], float | None] = lambda workflow: None
    row: Callable[[Mapping[str, Any], int], Mapping[str, Any]] = lambda fields, number: fields
    lms: Mapping[str, tuple[Callable[[Request], float], float]] = field(default_factory=dict)
    ceiling: float | None = None

    def planted(self, seed: int) -> World:
        """The world of a seed."""
        return self.seeded(self, seed) if self.seeded else self


def _facets(request: Request) -> float:
    gain = {INSTRUCTIONS[3]: 0.2, INSTRUCTIONS[2]: 0.1, INSTRUCTIONS[6]: 0.12}.get(instruction_of(request), 0.0)
    return 0.3 + gain + 0.04 * min(len(demos_of(request)), 8)


def _retrieval(request: Request) -> float:
    """Only examples on the topic of the question help: three of them are enough."""
    wanted = topic_of(str(request.messages[-1]["content"]))
    return 0.3 + 0.2 * min(3, sum(topic_of(d) == wanted for d in demos_of(request)))


def _deceptive(request: Request) -> float:
    """Examples help, and the good instruction helps only without them: the greedy first step leads away from it."""
    demos = min(len(demos_of(request)), 8)
    if instruction_of(request) == INSTRUCTIONS[5]:
        return 0.9 - 0.1 * min(demos, 6)
    return 0.4 + 0.025 * demos


def _settings(request: Request) -> float:
    """A hill in two numbers."""
    return max(0.05, 0.85 - 0.8 * (request.temperature - 0.4) ** 2 - 0.8 * (request.top_p - 0.6) ** 2)


def _rules(request: Request) -> float:
    """The right rule for the question's topic helps, a wrong one harms."""
    topic = int(topic_of(str(request.messages[-1]["content"])).removeprefix("topic") or 0)
    word = rules_in(instruction_of(request)).get(topic)
    return 0.3 if word is None else 0.9 if word == WORDS[topic] else 0.2


def _conflict(request: Request) -> float:
    """As in `rules`; and a rule for one topic of a pair harms the other one as long as that has no right rule."""
    topic = int(topic_of(str(request.messages[-1]["content"])).removeprefix("topic") or 0)
    rules = rules_in(instruction_of(request))
    right = rules.get(topic) == WORDS[topic]
    return _rules(request) - (0.15 if topic ^ 1 in rules and not right else 0.0)


def _topology(world: World, seed: int) -> World:
    def truth(workflow: Workflow) -> float | None:
        structure = topology.structure_of(workflow)
        return None if structure is None else topology.worth(structure, seed)

    return replace(world, skill=lambda request: topology.skill(request, seed), truth=truth)


def _routing(world: World, seed: int) -> World:
    def truth(workflow: Workflow) -> float | None:
        route = routing.route_of(workflow)
        return None if route is None else routing.worth(route, seed)

    lms = {m: (partial(routing.skill, model=m, seed=seed), price) for m, price in routing.PRICES.items()}
    if world.ceiling is None:
        return replace(world, truth=truth, lms=lms)
    ceiling, best = routing.ceiling(seed)
    return replace(world, truth=truth, lms=lms, ceiling=ceiling, best=best)


def _coins(request: Request) -> float:
    return 0.5


def _half(workflow: Workflow) -> float:
    return 0.5


def proposer(world: World, request: Request, rng: random.Random) -> str:
    """What the simulated proposer answers: no model, a rule with chance.

    Where rules pay, it keeps those of the prompts that it is shown (each with 95%; of two on one topic any), takes over
    those that an advice names, and adds one for up to two topics on which it sees failures: the right one in 60%. It
    gives a prompt where it is asked for one, else an advice. In the other worlds it gives an instruction by chance.
    Who asks for an edit of functions gets one, see `functions.propose`.
    """
    text = "\n".join(str(m["content"]) for m in request.messages)
    if '"action": "add"' in text:
        return functions.propose(text, rng)
    wants_prompt = "between <prompt>" in text
    if not world.ruled:
        advice = rng.choice(INSTRUCTIONS)
        return f"<prompt>\n{advice}\n</prompt>" if wants_prompt else f"Say this: {advice}"
    shown = [rules_in(block) for block in re.findall(r"<prompt>\n(.*?)</prompt>", text, re.DOTALL)]
    rules: dict[int, str] = {}
    for block in rng.sample(shown, len(shown)):
        rules |= {t: word for t, word in block.items() if rng.random() < 0.95}
    rules |= rules_in(re.sub(r"<prompt>\n(?s:.*?)</prompt>|- score .*", "", text))  # an advice's
    failing = [int(t) for t in re.findall(r"- score 0\.[0-4]\d; task: .*?topic(\d+)", text)]
    found: dict[int, str] = {}
    while failing and len(found) < 2:
        topic = rng.choice(failing)
        failing = [t for t in failing if t != topic]
        found[topic] = WORDS[topic] if rng.random() < 0.6 else rng.choice(WORDS)
    if wants_prompt:
        return f"<prompt>\n{with_rules({**rules, **found})}\n</prompt>"
    return "Failures come from missing rules. " + with_rules(found)


def _instructions_with_rules(count: int) -> list[str]:
    """What the proposer might write without evidence: a rule for every other topic, the right one in 30%."""
    rng = random.Random("instructions with rules")
    made = []
    for _ in range(count):
        topics = [t for t in range(TOPICS) if rng.random() < 0.5]
        made.append(with_rules({t: WORDS[t] if rng.random() < 0.3 else rng.choice(WORDS) for t in topics}))
    return [PLAIN, *made]


_BOTH = {"nodes.sort.instructions": INSTRUCTIONS, "nodes.sort.demos": {"demos": 8}}
_RULES = {"nodes.sort.instructions": _instructions_with_rules(63)}
_FUNCTIONS = {"nodes.sort.functions": functions.sets(63)}

WORLDS = {
    w.name: w
    for w in (
        World("facets", "wording and number of examples pay, each for itself", _facets, 0.82, _BOTH),
        World("retrieval", "only examples on the question's topic pay", _retrieval, 0.9, _BOTH),
        World("deceptive", "the best wording pays only without examples", _deceptive, 0.9, _BOTH),
        World(
            "settings",
            "a hill in temperature and top_p",
            _settings,
            0.85,
            {
                "nodes.sort.decoding.temperature": {"float": [0.0, 1.5]},
                "nodes.sort.decoding.top_p": {"float": [0.05, 1.0]},
            },
        ),
        World(
            "rules", "each of eight topics needs a rule of its own in the instruction", _rules, 0.9, _RULES, ruled=True
        ),
        World(
            "conflict",
            "as rules, and a rule for one topic harms its twin until that has its own",
            _conflict,
            0.9,
            _RULES,
            ruled=True,
        ),
        World("null", "nothing pays", lambda request: 0.5, 0.5, _BOTH, null=True),
        World(
            "null_rules",
            "nothing pays, and the proposer writes rules all the same",
            lambda request: 0.5,
            0.5,
            _RULES,
            null=True,
            ruled=True,
        ),
        World(
            "topology",
            "which steps come before the answer, and how it is asked for: another problem for each seed",
            lambda request: topology.skill(request, 0),
            topology.BEST,
            topology.SEARCH,
            nodes=topology.NODES,
            seeded=_topology,
            speak=topology.speak,
        ),
        World(
            "null_topology",
            "no step pays, and no wording",
            lambda request: 0.5,
            0.5,
            topology.SEARCH,
            null=True,
            nodes=topology.NODES,
            speak=topology.speak,
            truth=lambda workflow: 0.5,
        ),
        World(
            "functions",
            "an agent needs a function for each of eight topics, and most that are written do harm",
            functions.skill,
            functions.RIGHT,
            _FUNCTIONS,
            nodes=functions.NODES,
            speak=functions.speak,
            truth=functions.truth,
        ),
        World(
            "null_functions",
            "no function pays, and the proposer writes them all the same",
            _coins,
            0.5,
            _FUNCTIONS,
            null=True,
            nodes=functions.NODES,
            speak=functions.speak,
            truth=_half,
        ),
        World(
            "routing",
            "which of four models answers which kind of row: another problem for each seed",
            _coins,
            routing.SKILLS[0],
            routing.SEARCH,
            nodes=routing.NODES,
            seeded=_routing,
            row=routing.row,
        ),
        World(
            "routing_ceiling",
            "as routing, at 0.6 of what the best route costs",
            _coins,
            routing.SKILLS[0],
            routing.SEARCH,
            nodes=routing.NODES,
            seeded=_routing,
            row=routing.row,
            ceiling=1.0,
        ),
        World(
            "null_routing",
            "all models are alike",
            _coins,
            0.5,
            routing.SEARCH,
            null=True,
            nodes=routing.NODES,
            row=routing.row,
            lms={m: (_coins, price) for m, price in routing.PRICES.items()},
            truth=_half,
        ),
    )
}
