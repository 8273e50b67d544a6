"""What a scripted model says in the workflows of the gallery whose agents act in live worlds (`gallery_scripts`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.helpers.gallery_facts import shown
from tests.helpers.gallery_speech import Case, Drawn, code, numbers, own_rows

Found = re.Match[str]


def mend(found: Found) -> str:
    broken = re.findall(r"(?m)^\+?lamp (\d+): broken", shown(found, "observation"))
    return f"mend {broken[-1]}" if broken else "wait"


def open_door(found: Found) -> str:
    """To the place that was told, else the first door."""
    told = re.findall(r"It lies in the ([\w ]+)", found.string)
    return f"action: open {(told or re.findall(r'Rooms: ([a-z]+)', found.string))[-1]}"


def haggle(own: str, step: int) -> Callable[[Found], str]:
    """From 60 beyond its own value in steps of 20, as far as it remembers its own offers."""

    def say(found: Found) -> str:
        value, made = int(shown(found, own)), len(re.findall(r"(?m)^action: ", found.string))
        offered = numbers(re.findall(r"(?m)^observation: (.*)$", found.string)[-1])
        if offered and (value - offered[-1]) * step >= 0:
            return f"{offered[-1]} is fair, I accept."
        price = value - 3 * step + made * step
        price = max(price, value) if step < 0 else min(price, value)
        return f"I say {max(price, 1)}, for it is worth it."

    return say


TRAITS = {
    "alive": "owl bat cat dog sparrow moth cow whale frog bee",
    "flies": "owl bat kite plane sparrow moth drone bee",
}
TRAITS |= {
    "is big": "plane cow table drone whale ladder",
    "has feathers": "owl sparrow",
    "is on a farm": "dog cow",
    "is of wood": "chair table violin ladder",
    "hunts by night": "owl bat",
    "lives in water": "whale frog",
    "is played or burns down": "violin candle",
    "makes honey": "bee",
    "has rungs": "ladder",
}
TRAITS |= {
    "is furry": "bat cat dog",
    "is of metal": "spoon plane",
    "hangs by a thread": "kite",
    "lies on the beach": "stone",
}


def deduce(found: Found) -> str:
    """Ask for a trait that some of the words have that are left; what was asked stands in the history alone."""
    asked = re.findall(r"(?m)^action: Is it so: (.*)\?$", found.string)
    answers = re.findall(r"(?m)^observation: (.*)$", found.string)
    words = {word for words in TRAITS.values() for word in words.split()}
    for trait, answer in zip(asked, answers, strict=False):
        words = {word for word in words if (word in TRAITS[trait].split()) == (answer == "yes")}
    left = [trait for trait in TRAITS if trait not in asked and 0 < len(words & {*TRAITS[trait].split()}) < len(words)]
    return f"Is it so: {left[0]}?" if left else f"guess: {min(words, default='nothing')}"


def judge_word(found: Found) -> str:
    trait = re.findall(r"Is it so: (.*)\?", found.string)[-1]
    return "yes" if shown(found, "secret") in TRAITS[trait].split() else "no"


def carry(name: str) -> Callable[[Found], str]:
    """Ann takes the first room of the list and Bob the second, if they say so; else both take the first."""

    def say(found: Found) -> str:
        observation, plan = shown(found, "observation"), shown(found, "plan")
        rooms = re.findall(r"Parcels in: (.*?)\.", observation)[-1].split(", ")
        agreed = re.findall(r"said: (?:agreed: )?(.*)", observation)
        if "Discuss." in observation:
            made = agreed[-1] if agreed else f"ann {rooms[0]}, bob {rooms[-1]}"
            return f"plan: {made}\naction: {'agreed: ' if agreed else ''}{made}"
        plan = agreed[-1] if agreed else plan
        mine = [room for room in re.findall(rf"{name} (\w+)", plan) if room in rooms]
        return f"plan: {plan or 'none'}\naction: go {(mine or rooms)[0]}"

    return say


def explain(found: Found) -> str:
    seen = re.findall(r"(\d+) weights: (-?[\d.]+) cm", shown(found, "observation"))
    if not seen:
        return "Nothing was measured."
    slope = sum(float(length) / int(weights) for weights, length in seen) / len(seen)
    return f"It grows by {round(slope)} cm for each weight."


def predict(found: Found) -> str:
    each = re.findall(r"by (\d+) cm", found.string)
    return str(int(each[0]) * int(re.findall(r"(\d+) weights", found.string)[0])) if each else "unknown"


def browse(found: Found) -> str:
    """Take an advertisement where there is one, then the rooms in turn, of which the plan says which are left."""
    observation, actions = shown(found, "observation"), shown(found, "actions").split(", ")
    plan = shown(found, "plan")
    left = [room for room in plan.split(" or ") if room in ("garden", "kitchen", "cellar")] or [
        "garden",
        "kitchen",
        "cellar",
    ]
    if any(action.endswith("advertisement") for action in actions):
        return f"plan: {' or '.join(left)}\naction: visit advertisement"
    if told := re.findall(r"it stands on the (\w+ shelf)", observation):
        return f"plan: {' or '.join(left)}\naction: visit {told[0]}"
    if any(action.endswith("back") for action in actions):
        return f"plan: {' or '.join(left[1:]) or 'none'}\naction: visit back"
    return f"plan: {' or '.join(left)}\naction: visit {left[0]}"


def plan_click(found: Found) -> str:
    observation = shown(found, "observation")
    if "all the same" in observation:
        return "kind: line\ntarget: open it all the same"
    if observation.startswith("table"):
        return f"kind: cell\ntarget: {re.findall(r'total of ([A-Z][a-z]+)', found.string)[0]}"
    return "kind: line\ntarget: report"


def click_line(found: Found) -> str:
    lines = shown(found, "observation").partition(": ")[2].split(" / ")
    target = shown(found, "target")
    return f"click line {lines.index(target) + 1 if target in lines else 1}"


def click_cell(found: Found) -> str:
    names = [line.split()[0] for line in shown(found, "observation").partition(": ")[2].split(" / ")]
    return f"click cell {names.index(shown(found, 'target')) + 1} 2"


def foresee(found: Found) -> str:
    """A model of the world: stones, ice and wet grass give way."""
    path = shown(found, "candidate").removeprefix("take ")
    seen = re.findall(rf"{path}, past ([a-z ]+)", found.string)[-1]
    return f"{path} leads on" if "bridge" in seen else f"{path} ends in a fall"


def choose(found: Found) -> str:
    best = re.findall(r"(\w+ path) leads on", shown(found, "states"))
    return f"take {best[0] if best else 'left path'}"


def go_on(found: Found) -> str:
    """Another agent's step: a sure wrong one first, then two numbers more of the sum."""
    parts, review = numbers(shown(found, "question")), shown(found, "review")
    done = re.findall(r"(\d+) numbers are in it", review)
    return str(sum(parts[: int(done[0]) + 2]) if done else parts[0] if "go on" in review else sum(parts) + 7)


def guess(found: Found) -> str:
    """Another wrong one after each."""
    return str(sum(numbers(shown(found, "question"))) + 9 + 10 * sum(numbers(shown(found, "answer"))))


def assess(found: Found) -> str:
    parts, answer = numbers(shown(found, "question")), int(shown(found, "answer"))
    done = [n for n in range(1, len(parts) + 1) if sum(parts[:n]) == answer]
    if not done:
        return "worth: 0.9\nconfidence: 0.1\nreview: a guess, go on in steps"
    return f"worth: {0.95 if done[0] == len(parts) else 0.6}\nconfidence: 0.9\nreview: {done[0]} numbers are in it"


SITES = {row["question"]: row["pages"] for row in own_rows("sites")}


def next_page(found: Found) -> str:
    """Three links ahead on the way to the receipt; as from the entrance where it is not shown where one is."""
    pages, page = SITES[shown(found, "question")], shown(found, "page")
    goal = next(name for name, at in pages.items() if "receipt" in at["text"])
    way = path_to(pages, page or "home", goal)
    return way[min(3, len(way) - 1)]


def path_to(pages: dict[str, Any], start: str, goal: str) -> list[str]:
    """The shortest way along the links."""
    ways = [[start]]
    for way in ways:
        if way[-1] == goal:
            return way
        ways += [[*way, link] for link in pages[way[-1]]["links"] if link not in way]
    return [start]


class Clicks:
    """Takes the links of a page in turn."""

    def __init__(self) -> None:
        self.taken = Counter[str]()

    def __call__(self, found: Found) -> str:
        links = re.findall(r"click \w+", re.findall(r"You can: (.*)", found.string)[-1])
        self.taken[found.string] += 1
        return links[self.taken[found.string] % len(links)]


GOLD = {row["query"]: row["gold"] for row in own_rows("commands")}
WRITES = (
    "cp",
    "mv",
    "rm",
    "mkdir",
    "sed -i",
    "echo",
    "sort /testbed/notes/towns.txt >",
    "find /testbed -type f -empty -delete",
)


def first_command(found: Found) -> str:
    """With a slip in a path, or, where nothing is changed by it, with more than was asked for in every second row."""
    gold = GOLD[shown(found, "query")]
    wordy = not gold.startswith(WRITES) and [*GOLD.values()].index(gold) % 2
    return f"{gold}; ls /testbed" if wordy else gold.replace("/testbed", "/testbet", 1)


def mend_command(found: Found) -> str:
    return GOLD[shown(found, "query")]


def check_output(found: Found) -> str:
    """By the last command in the history; without it, or where there is an error, it sees nothing to mend."""
    gold, done = GOLD[shown(found, "query")], re.findall(r"(?m)^action: (.+)$", found.string)
    return "submit" if not done or done[-1] == gold or "No such file" in found.string else gold


PLACES = sorted({row["place"] for row in own_rows("errands")})

#: Programs as a model might write them: one that cannot be read, one that looks at the wrong thing, one that is good.
HEURISTICS = [
    "def value(state, goal): return [",
    "def value(state, goal):\n    return [float(-len(stacks)) for stacks in state['children']]",
    """def value(state, goal):
    below = {b: a for stack in goal for a, b in zip(['table', *stack], stack)}
    found = []
    for stacks in state['children']:
        wrong = 0
        for stack in stacks:
            right = True
            for a, b in zip(['table', *stack], stack):
                right = right and below[b] == a
                wrong += not right
        found.append(float(wrong))
    return found""",
]

WORLDS: dict[str, Case] = {
    "diff_history.yaml": Case(
        [("Name the broken lamp", "observation", mend)],
    ),
    "ask_before_acting.yaml": Case(
        [
            *[(f"place: {room}", "Where", f"It lies in the {room}.") for room in PLACES],
            ("Ask the owner", r"\ARooms[^\n]*\Z|observation: [^\n]*\Z", "say: Where does it lie?"),
            ("Ask the owner", "Rooms", open_door),
        ],
    ),
    "glee.yaml": Case(
        [("You sell", "cost", haggle("cost", -20)), ("You buy", "worth", haggle("worth", 20))],
    ),
    "entity_deduction.yaml": Case(
        [("Find out the word", "observation", deduce), ("Answer the question", "secret", judge_word)],
    ),
    "capo.yaml": Case(
        [("You are Ann", "observation", carry("ann")), ("You are Bob", "observation", carry("bob"))],
    ),
    "boxing_gym.yaml": Case(
        [
            ("tells most", "observation", "weigh 10"),
            ("Do an experiment", "observation", "weigh 1"),
            ("Explain", "observation", explain),
            ("Predict by the theory", "question", predict),
        ],
    ),
    "agent_occam.yaml": Case(
        [("rooms still to see", "observation", browse)],
    ),
    "agent_s2.yaml": Case(
        [
            ("next sub-goal", "observation", plan_click),
            ("Find the line", "observation", click_line),
            ("Find the cell", "observation", click_cell),
        ],
    ),
    "simura.yaml": Case(
        [("Predict where this leads", "candidate", foresee), ("predicted state is best", "candidates", choose)],
    ),
    "master.yaml": Case(
        [("Take the next step", "question", Drawn(go_on, guess)), ("How good is it", "question", assess)],
    ),
    "webpilot.yaml": Case(
        [("Name the page to reach next", "done", next_page), ("Look for the page", "You can", Clicks())],
    ),
    "llm_heuristics.yaml": Case([("", "", Drawn(*(code(*one.splitlines()) for one in HEURISTICS)))]),
    "stateflow_intercode.yaml": Case(
        [
            ("Write one Bash command", "query: ", first_command),
            ("The last command failed", "query: ", mend_command),
            ("Is the task done", "query: ", check_output),
        ],
    ),
}
