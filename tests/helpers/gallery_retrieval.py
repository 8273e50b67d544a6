"""What a scripted model says in the workflows of the gallery that are made of `search`, `remember` and `recall`."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.helpers import gallery_facts as facts
from tests.helpers.gallery_loops import listed, shown
from tests.helpers.gallery_speech import Case, code

# AriGraph: which animal, and then its colour, stand in two triples.


def write_triples(found: re.Match[str]) -> str:
    seen = shown(found, "observation")
    subject, relation, object_ = re.findall(r"(?:the )?(\w+) (has|is)(?: the)? (\w+)", seen)[0]
    return json.dumps([{"subject": subject, "relation": relation, "object": object_}])


def colour_in_graph(found: re.Match[str]) -> str:
    name = re.findall(r"animal of (\w+)\?", found.string)[0]
    triples = re.findall(r"subject: (\w+); relation: (\w+); object: (\w+)", facts.shown(found, "triples"))
    animals = [o for s, r, o in triples if s == name and r == "has"]
    colours = [o for s, r, o in triples if animals and s == animals[0] and r == "is"]
    seen = [colour for colour in colours if f"is {colour}" in facts.shown(found, "episodes")]
    return seen[0] if seen else "unknown"


# ResearchCodeAgent: each file is read, put into a variable, and noted; then Python on the variables prints the answer.
WORDS = "lambda verb: next(note.split()[1] for note in notes if note.startswith(verb))"
FILE_TASKS = {
    "How many fruits and towns": "f'{len(fruit) + len(towns)}, {named(\"buy\")}'",
    "letters have the names of the towns together": "sum(map(len, towns))",
    "word in fruit.txt is the longest": "max(fruit, key=len)",
    "lines have all files": "len(fruit) + len(towns) + len(notes)",
    "is to be bought, and how often": 'f\'{named("buy")}, {fruit.count(named("buy"))}\'',
    "In which line of fruit.txt": "fruit.index(named('sell')) + 1",
    "different fruits are there, and whom": "f'{len({*fruit})}, {named(\"call\")}'",
    "each with the number of its letters": "', '.join(f'{town} {len(town)}' for town in sorted(towns))",
    "a crate with 12 pieces": "12 * len(fruit)",
    "letter e stand in fruit.txt": "''.join(fruit).count('e')",
    "Multiply the number of lines": "len(towns) * len(fruit)",
    "How many words are in notes.txt": "sum(len(note.split()) for note in notes)",
    "Each town gets each different fruit": "f'{len(towns) * len({*fruit})}, {named(\"call\")}'",
    "not named in notes.txt": "', '.join(sorted({one for one in fruit if one not in ' '.join(notes)}))",
    "stand before the fruit that is to be bought": "fruit.index(named('buy'))",
    "backwards, in the order": "', '.join(town[::-1] for town in towns)",
    "letters have the different fruits": "sum(map(len, {*fruit}))",
    "as many letters as plum": "next(town for town in towns if len(town) == 4 and len({*town}) < 4)",
    "more lines than notes.txt": "f'{len(fruit) - len(notes)}, {named(\"sell\")}'",
    "2 to the power": "2 ** len(fruit) + len(towns)",
}


def plan_action(found: re.Match[str]) -> str:
    question = shown(found, "question")
    wanted = next((code for words, code in FILE_TASKS.items() if words in question), "0")
    noted, recent = facts.shown(found, "findings"), facts.shown(found, "recent")
    last = recent.rpartition("action: ")[2]

    def act(action: str, argument: str) -> str:
        return f"action: {action}\nargument: {argument}"

    for name in ("fruit", "towns", "notes"):
        if (name in wanted or (name == "notes" and "named(" in wanted)) and f"{name} is a variable" not in noted:
            if last.startswith("run") and f"{name} = " in last:
                return act("keep", f"{name} is a variable")
            seen = re.findall(rf"(?s)argument: cat {name}\.txt; outcome: (.*?)\s*\Z", last)
            lines = re.findall(r"\w+ \w+" if name == "notes" else r"\w+", seen[0]) if seen else []
            return act("run", f"{name} = {lines!r}") if seen else act("read", f"cat {name}.txt")
    said = re.findall(r"argument: named.*outcome: (.*)", last)
    return act("finish", said[0]) if said else act("run", f"named = {WORDS}; print({wanted})")


# Toolshed: what each part of a request is called, and the words of the tool that does it.
PARTS = {
    "Shrink": ("make a photo smaller", "dimensions"),
    "by mail": ("let a friend know by mail", "to an address"),
    "yen": ("how much are euros", "rate of exchange"),
    "umbrella": ("wet tomorrow", "next days"),
    "wet tomorrow": ("wet tomorrow", "next days"),
    "in the next days": ("wet tomorrow", "next days"),
    "Text Ann": ("text a friend by phone", "to a phone"),
    "text Ann": ("text a friend by phone", "to a phone"),
    "Plan a meeting": ("plan a meeting", "calendar"),
    "plan a meeting": ("plan a meeting", "calendar"),
    "into my calendar": ("remind me of a date", "calendar"),
    "in French": ("say it in French", "another language"),
    "foreign letter": ("understand a foreign letter", "another language"),
    "Cut the left": ("cut the photo", "a part out of"),
    "gone by": ("was it wet on that day", "days gone by"),
    "Reserve a place": ("rooms to meet in", "Reserves a place"),
    "reserve a room": ("rooms to meet in", "Reserves a place"),
    "written wrongly": ("mistakes in a text", "written wrongly"),
    "a share of": ("how much is a share", "price of a share"),
}


def cut_request(found: re.Match[str]) -> str:
    question = shown(found, "question")
    named = sorted((question.index(word), ask) for word, (ask, _) in PARTS.items() if word in question)
    return json.dumps([ask for _, ask in named])


def order_tools(found: re.Match[str]) -> str:
    wanted = dict(PARTS.values()).get(shown(found, "ask"), "no such part")
    return json.dumps(
        [int(n) for n, card in re.findall(r"(?m)^(?:documents: )?(\d+)\. (.*)$", found.string) if wanted in card]
    )


def follow_example(found: re.Match[str]) -> str:
    """OwnExamples: the action of the example that is nearest to the situation."""
    here = {*re.findall(r"\w+", found[1].lower())}
    examples = re.findall(r"situation: (.*)\naction: (.+)", found.string)
    return max(((len(here & {*there.split()}), action) for there, action in examples), default=(0, "wait"))[1]


# GraphTeam: who is not told the method prints 0; on triangles the code fails, and the tool's arguments are mended.


def write_code(found: re.Match[str]) -> str:
    if said := re.findall(r"result: (\d+)\Z", found.string):
        return f"found: {said[0]}"
    method = facts.shown(found, "documents")
    if "three nodes" in method:
        return code("raise ValueError('too hard')")
    node = re.findall(r"neighbours has (\w)", shown(found, "question"))
    if "sum(NODE" in method and node:
        return code(f"print(sum('{node[0]}' in edge.split('-') for edge in graph.split()))")
    if "distance(graph" in method:
        start, goal = re.findall(r"far is (\w) from (\w)", shown(found, "question"))[0]
        return code(f"print(distance({'graph, ' if 'error: ' in found.string else ''}{start!r}, {goal!r}))")
    return code("print(len(graph.split()))" if "len(graph.split())" in method else "print(0)")


def think_through(found: re.Match[str]) -> str:
    edges = {frozenset(edge.split("-")) for edge in shown(found, "graph").split()}
    nodes = sorted({node for edge in edges for node in edge})
    corners = [(a, b, c) for a in nodes for b in nodes for c in nodes if a < b < c]
    return str(sum({frozenset(pair) for pair in ((a, b), (b, c), (a, c))} <= edges for a, b, c in corners))


# MobileAgent: the steps stand in the procedure, and a notice on the screen; without them the obvious one is taken.


def next_step(found: re.Match[str]) -> str:
    if "notice" in shown(found, "screen"):
        return "close notice"
    steps, done = re.findall(r"\d\. (\w+ \w+)", facts.shown(found, "documents")), listed(found, "done")
    return next((step for step in steps if step not in done), "pay bill")


# ViDoRAG: the seeker takes two pages at first; what is shown and is about other things is counted too.


def seek_pages(found: re.Match[str]) -> str:
    ids = [page["id"] for page in listed(found, "kept")]
    return json.dumps(ids[:1] if shown(found, "missing") == "nothing yet" else ids)


def inspect_pages(found: re.Match[str]) -> str:
    pages = listed(found, "shown")
    floors = re.findall(r"of (\d+) of the lighthouse", " ".join(pages))
    return "enough: yes\nmissing: none" if floors and len(floors) >= int(floors[0]) else "enough: no\nmissing: floors"


def count_lamps(found: re.Match[str]) -> str:
    return str(sum(int(n) for n in re.findall(r"has (\d+)", " ".join(listed(found, "shown")))))


# GenRewrite: a query without a counter can be rewritten by the rule alone that another query's counterexample taught.

ONE_PASS, LISTED = "Aggregate groups in one pass.", "Look ids up in one list, and leave out of it what is NULL."
QUERIES = {
    "grouped": "SELECT o.id FROM orders o WHERE o.amount = (SELECT max(i.amount) FROM orders i WHERE i.day = o.day)",
    "absent": "SELECT c.name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "counted": "SELECT c.id FROM customers c WHERE (SELECT count(*) FROM orders o WHERE o.customer = c.id) = 0",
}


GROUPED = "SELECT id FROM (SELECT id, amount, max(amount) OVER (PARTITION BY day) AS m FROM orders) WHERE amount = m"


def not_listed(query: str, more: str = "") -> str:
    column, key = re.findall(r"SELECT c\.(\w+) .* o\.(\w+) = c\.id", query)[0]
    return f"SELECT {column} FROM customers WHERE id NOT IN (SELECT {key} FROM orders{more.format(key)})"


def first_rewrite(query: str, no_nulls: bool) -> tuple[str, str]:
    """A rewrite and its rule; right where a column may be NULL only if these are left out. The query itself if none
    is known."""
    kind = next((kind for kind, form in FORMS.items() if re.search(form, query)), None)
    wanted, keys = re.findall(r"SELECT \w\.(\w+)", query)[0], re.findall(r"\w\.(\w+) = \w\.(?:id|\w+)", query)
    key, ends = keys[-1], re.findall(r"\) ([<>=]+ \d+)$", query)
    given = f" WHERE {key} IS NOT NULL" if no_nulls else ""
    if kind == "none":
        return not_listed(
            query, " WHERE {} IS NOT NULL" if no_nulls else ""
        ), LISTED if no_nulls else "Look ids up in one list."
    if kind == "some":
        return f"SELECT {wanted} FROM customers WHERE id IN (SELECT {key} FROM orders)", "Look ids up in one list."
    if kind == "either":
        listed = " OR ".join(f"id IN (SELECT {key} FROM orders)" for key in ("customer", "payer"))
        return f"SELECT {wanted} FROM customers WHERE {listed}", "Look ids up in two lists."
    if kind == "group":
        made = re.findall(r"SELECT (count\(\*\)|sum)", query)[0].replace("sum", "sum(amount)")
        groups = f"SELECT {key} FROM orders GROUP BY {key} HAVING {made} {ends[0]}"
        return f"SELECT {wanted} FROM customers WHERE id IN ({groups})", ONE_PASS
    if kind == "window":
        compared, how = re.findall(r"o\.amount ([<>=]) \(SELECT (\w+)", query)[0]
        over = f"SELECT id, amount, {how}(amount) OVER (PARTITION BY {key}) AS m FROM orders{given}"
        return f"SELECT id FROM ({over}) WHERE amount {compared} m", ONE_PASS
    if kind == "twin":
        over = f"SELECT id, count(*) OVER (PARTITION BY {key}) AS n FROM orders{given}"
        return f"SELECT id FROM ({over}) WHERE n {ends[0] if ends else '> 1'}", ONE_PASS
    return query, "none"


#: The forms of queries, by the rewrite that they take.
FORMS = {
    "none": r"count\(\*\) FROM orders o .*= 0$",
    "some": r"count\(\*\) FROM orders o .*> 0$",
    "either": r" OR o\.",
    "group": r"SELECT (count\(\*\)|sum\(o\.amount\)) FROM orders o ",
    "window": r"o\.amount [<>=] \(SELECT",
    "twin": r"FROM orders i ",
}


def rewrite(found: re.Match[str]) -> str:
    """By the rule with the highest speed-up that is shown, else by the query's form; a fault is mended as it says."""
    query, fault = shown(found, "query"), facts.shown(found, "fault")
    rules = re.findall(r"rule: ([^;]+); (?:speed_up: ([\d.]+))?", facts.shown(found, "rules"))
    best = max(rules, key=lambda rule: float(rule[1] or 0), default=("", ""))[0]
    if "NOT EXISTS" in query or ("count(*)" in query and "= 0" in query and best == LISTED):
        made, rule = (not_listed(query, " WHERE {} IS NOT NULL"), LISTED) if best == LISTED else (query, "none")
    else:
        made, rule = first_rewrite(query, "NULL" in fault)
    return f"rewrite: {made}\nrule: {rule}"


def workload(*names: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Queries, and what becomes of them."""
    queries = {name: QUERIES[name] for name in names}
    right = [GROUPED if n == "grouped" else not_listed(q, " WHERE {} IS NOT NULL") for n, q in queries.items()]
    return {"question": "", "queries": [*queries.values()]}, {"rewrites": str(right)}


RETRIEVAL: dict[str, Case] = {
    "knowledge_cache.yaml": Case(
        [
            (
                "Write a short search for what the knowledge lacks.",
                "question: ",
                facts.write_next("knowledge", idle="towns of Ostra"),
            ),
            ("Write in a sentence what the page adds.", r"(?s)documents: [^\n]*?: (.*?)\n\w+:", r"\1"),
            ("Does this answer the question?", "gained: ", facts.suffices("knowledge", "gained")),
            ("Answer by the facts.", "facts: ", facts.answers_brief("facts")),
        ],
    ),
    "arigraph.yaml": Case(
        [
            ("Write the facts as triples.", "observation: ", write_triples),
            ("Answer by what was seen.", "triples: ", colour_in_graph),
        ],
    ),
    "research_code_agent.yaml": Case([("Which action is next", "question: ", plan_action)]),
    "toolshed.yaml": Case(
        [("What must be done?", "question: ", cut_request), ("Which of these tools", "ask: ", order_tools)],
    ),
    "dare.yaml": Case(
        [("Name the function", r"documents: \[(\w+)\]", r"\1")],
    ),
    "own_examples.yaml": Case([("Do what the examples do", "situation: (.*)", follow_example)]),
    "graph_team.yaml": Case(
        [
            ("Name the task", "neighbours", "the neighbours of a node"),
            ("Name the task", "edges", "the number of edges of a graph"),
            ("Name the task", "triangles", "the triangles of a graph"),
            ("Name the task", "far", "how far two nodes are"),
            ("Write Python", "question: ", write_code),
            ("Answer by thinking", "graph: ", think_through),
            ("Write the answer", r"finding: (\d+)", r"\1"),
        ],
        wrong=["code"],
    ),
    "mobile_agent.yaml": Case(
        [
            ("Which step of the procedure is next?", "question: ", next_step),
            ("May this be done?", "wishes: .*(?:Nothing|stay|wrong|keep|already)", "no"),
            ("May this be done?", "wishes: ", "yes"),
        ],
    ),
    "omni_search.yaml": Case(
        [
            ("What must be looked up next", "question: ", facts.plan_look_up),
            ("Answer by the evidence.", "evidence: ", facts.answers("evidence")),
        ],
    ),
    "vidorag.yaml": Case(
        [
            ("Which pages are needed?", "kept: ", seek_pages),
            ("Do these pages suffice?", "shown: ", inspect_pages),
            ("Answer by the pages.", "shown: ", count_lamps),
        ],
    ),
    "gen_rewrite.yaml": Case(
        [("Rewrite the query", "query: ", rewrite)],
    ),
}
