"""The planted worlds. In each, a formula gives the probability of a right answer to a request.

So the best workflow is known, and a winner has a true accuracy without test noise. All worlds label short texts on one
of eight topics; they differ in which changes help. Each has a simulated proposer, see `answer_as_proposer`.
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


def find_demos(request: Request) -> list[str]:
    """The inputs of the examples in a request."""
    return [str(m["content"]) for m in request.messages if m["role"] == "user"][:-1]


def find_topic(text: str) -> str:
    found = re.search(r"topic\d+", text)
    return found.group() if found else ""


def find_instruction(request: Request) -> str:
    first = request.messages[0]
    return str(first["content"]).split("\n")[0] if first["role"] == "system" else ""


def read_rules(text: str) -> dict[int, str]:
    """The rules in an instruction, by topic; of two on one topic, the later one counts."""
    return {int(t): word for t, word in re.findall(r"For topic(\d+) go by the (\w+)\.", text)}


def write_rules(rules: Mapping[int, str]) -> str:
    return " ".join([PLAIN, *(f"For topic{t} go by the {word}." for t, word in sorted(rules.items()))])


@dataclass(frozen=True)
class World:
    """A planted problem.

    Args:
        skill: the probability of a right answer to a request.
        best: the highest accuracy of any workflow in the search space.
        null: nothing helps, so no gain may be claimed.
        ruled: rules for topics help, and the simulated proposer writes such rules.
        nodes: the starting workflow, if it is not a single step.
        seeded: each seed is another world.
        speak: the answer to a request that does not ask for a label.
        truth: the accuracy of a workflow, if the skill of single requests does not determine it.
        row: adds this world's fields to a row of data, by its number.
        lms: skill and price per call of further language models, by name.
        ceiling: maximum US dollars per row; the result is then the candidate with the best score on val within it.
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
        """The world for a seed."""
        return self.seeded(self, seed) if self.seeded else self


def _facets(request: Request) -> float:
    gain = {INSTRUCTIONS[3]: 0.2, INSTRUCTIONS[2]: 0.1, INSTRUCTIONS[6]: 0.12}.get(find_instruction(request), 0.0)
    return 0.3 + gain + 0.04 * min(len(find_demos(request)), 8)


def _retrieval(request: Request) -> float:
    """Only examples on the question's topic help; three are enough."""
    wanted = find_topic(str(request.messages[-1]["content"]))
    return 0.3 + 0.2 * min(3, sum(find_topic(d) == wanted for d in find_demos(request)))


def _deceptive(request: Request) -> float:
    """Examples help; the best instruction helps only without them, so a greedy first step leads away from it."""
    demos = min(len(find_demos(request)), 8)
    if find_instruction(request) == INSTRUCTIONS[5]:
        return 0.9 - 0.1 * min(demos, 6)
    return 0.4 + 0.025 * demos


def _settings(request: Request) -> float:
    """A hill in two numbers."""
    return max(0.05, 0.85 - 0.8 * (request.temperature - 0.4) ** 2 - 0.8 * (request.top_p - 0.6) ** 2)


def _rules(request: Request) -> float:
    """The right rule for the question's topic helps, a wrong one harms."""
    topic = int(find_topic(str(request.messages[-1]["content"])).removeprefix("topic") or 0)
    word = read_rules(find_instruction(request)).get(topic)
    return 0.3 if word is None else 0.9 if word == WORDS[topic] else 0.2


def _conflict(request: Request) -> float:
    """As in `rules`. Besides, a rule for one topic of a pair harms the other topic until that has its right rule."""
    topic = int(find_topic(str(request.messages[-1]["content"])).removeprefix("topic") or 0)
    rules = read_rules(find_instruction(request))
    right = rules.get(topic) == WORDS[topic]
    return _rules(request) - (0.15 if topic ^ 1 in rules and not right else 0.0)


def _topology(world: World, seed: int) -> World:
    def truth(workflow: Workflow) -> float | None:
        structure = topology.read_structure(workflow)
        return None if structure is None else topology.score_structure(structure, seed)

    return replace(world, skill=lambda request: topology.compute_skill(request, seed), truth=truth)


def _routing(world: World, seed: int) -> World:
    def truth(workflow: Workflow) -> float | None:
        route = routing.read_route(workflow)
        return None if route is None else routing.score_route(route, seed)

    lms = {m: (partial(routing.compute_skill, model=m, seed=seed), price) for m, price in routing.PRICES.items()}
    if world.ceiling is None:
        return replace(world, truth=truth, lms=lms)
    ceiling, best = routing.find_ceiling(seed)
    return replace(world, truth=truth, lms=lms, ceiling=ceiling, best=best)


def asks_to_reason(request: Request) -> bool:
    return any("Reason step by step" in str(m["content"]) for m in request.messages)


def has_dspys_form(request: Request) -> bool:
    return "[[ ##" in str(request.messages[0]["content"])


def _kinds(request: Request) -> float:
    """Reasoning and examples help, each by itself and together most; another form of the prompt harms."""
    return 0.3 + 0.2 * asks_to_reason(request) + 0.03 * min(len(find_demos(request)), 8) - 0.1 * has_dspys_form(request)


def _rivals(request: Request) -> float:
    """Reasoning helps alone and harms beside examples, which help more."""
    demos = min(len(find_demos(request)), 8)
    helped = 0.15 * (demos == 0) if asks_to_reason(request) else 0.05 * demos
    return 0.4 + helped - 0.1 * has_dspys_form(request)


def _coins(request: Request) -> float:
    return 0.5


def _half(workflow: Workflow) -> float:
    return 0.5


def answer_as_proposer(world: World, request: Request, rng: random.Random) -> str:
    """The answer of the simulated proposer, a randomised rule.

    In worlds of rules, it keeps each rule of the prompts it sees with probability 95% (of two on one topic, either),
    adopts those that an advice names, and adds one for up to two topics with failures, the right one with 60%. It
    returns a prompt if asked for one, else an advice. In other worlds it returns a random instruction. A request for an
    edit of functions is answered by `functions.propose`.
    """
    text = "\n".join(str(m["content"]) for m in request.messages)
    if '"action": "add"' in text:
        return functions.propose(text, rng)
    wants_prompt = "between <prompt>" in text
    if not world.ruled:
        advice = rng.choice(INSTRUCTIONS)
        return f"<prompt>\n{advice}\n</prompt>" if wants_prompt else f"Say this: {advice}"
    shown = [read_rules(block) for block in re.findall(r"<prompt>\n(.*?)</prompt>", text, re.DOTALL)]
    rules: dict[int, str] = {}
    for block in rng.sample(shown, len(shown)):
        rules |= {t: word for t, word in block.items() if rng.random() < 0.95}
    rules |= read_rules(re.sub(r"<prompt>\n(?s:.*?)</prompt>|- score .*", "", text))  # rules of an advice
    failing = [int(t) for t in re.findall(r"- score 0\.[0-4]\d; task: .*?topic(\d+)", text)]
    found: dict[int, str] = {}
    while failing and len(found) < 2:
        topic = rng.choice(failing)
        failing = [t for t in failing if t != topic]
        found[topic] = WORDS[topic] if rng.random() < 0.6 else rng.choice(WORDS)
    if wants_prompt:
        return f"<prompt>\n{write_rules({**rules, **found})}\n</prompt>"
    return "Failures come from missing rules. " + write_rules(found)


def _instructions_with_rules(count: int) -> list[str]:
    """Instructions that a proposer might write without evidence: a rule for every other topic, 30% of them right."""
    rng = random.Random("instructions with rules")
    made = []
    for _ in range(count):
        topics = [t for t in range(TOPICS) if rng.random() < 0.5]
        made.append(write_rules({t: WORDS[t] if rng.random() < 0.3 else rng.choice(WORDS) for t in topics}))
    return [PLAIN, *made]


_BOTH = {"nodes.sort.instructions": INSTRUCTIONS, "nodes.sort.demos": {"demos": 8}}
_RULES = {"nodes.sort.instructions": _instructions_with_rules(63)}
_KINDS = {
    "nodes.sort.demos": {"demos": 8},
    "nodes.sort.reasoning": [False, True],
    "nodes.sort.adapter": ["plain", "chat", "json", "xml"],
}
_FUNCTIONS = {"nodes.sort.functions": functions.make_sets(63)}

WORLDS = {
    w.name: w
    for w in (
        World("facets", "wording and number of examples help independently", _facets, 0.82, _BOTH),
        World("retrieval", "only examples on the question's topic help", _retrieval, 0.9, _BOTH),
        World("deceptive", "the best wording helps only without examples", _deceptive, 0.9, _BOTH),
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
            "as rules, but a rule for one topic harms its twin until that has its own",
            _conflict,
            0.9,
            _RULES,
            ruled=True,
        ),
        World("kinds", "reasoning and examples help, other forms of the prompt do not", _kinds, 0.74, _KINDS),
        World("rivals", "reasoning helps alone and harms beside examples, which help more", _rivals, 0.8, _KINDS),
        World("null_kinds", "no kind of change helps", _coins, 0.5, _KINDS, null=True),
        World("null", "nothing helps", _coins, 0.5, _BOTH, null=True),
        World(
            "null_rules",
            "nothing helps, but the proposer writes rules",
            _coins,
            0.5,
            _RULES,
            null=True,
            ruled=True,
        ),
        World(
            "topology",
            "which steps precede the answer, and how it is requested: another problem for each seed",
            lambda request: topology.compute_skill(request, 0),
            topology.BEST,
            topology.SEARCH,
            nodes=topology.NODES,
            seeded=_topology,
            speak=topology.speak,
        ),
        World(
            "null_topology",
            "no step helps, and no wording",
            _coins,
            0.5,
            topology.SEARCH,
            null=True,
            nodes=topology.NODES,
            speak=topology.speak,
            truth=lambda workflow: 0.5,
        ),
        World(
            "functions",
            "an agent needs a function for each of eight topics, but most proposed functions do harm",
            functions.compute_skill,
            functions.RIGHT,
            _FUNCTIONS,
            nodes=functions.NODES,
            speak=functions.speak,
            truth=functions.score_workflow,
        ),
        World(
            "null_functions",
            "no function helps, but the proposer writes them",
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
            row=routing.add_kind,
        ),
        World(
            "routing_ceiling",
            "as routing, at 0.6 of the cost of the best route",
            _coins,
            routing.SKILLS[0],
            routing.SEARCH,
            nodes=routing.NODES,
            seeded=_routing,
            row=routing.add_kind,
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
            row=routing.add_kind,
            lms={m: (_coins, price) for m, price in routing.PRICES.items()},
            truth=_half,
        ),
    )
}
