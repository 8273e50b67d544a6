"""What each file of the gallery is for: settings that take a part of its design out, by the words of its head.

The first of a file is the paper's own mechanism: without it, at least half of the file's rows are wrong. Each further
part decides at least a quarter of them.
"""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]


def code(signature: str, source: str) -> Settings:
    """A code node in place of another one."""
    return {"kind": "code", "code": signature, "source": source}


TURN = "nodes.talk.nodes.turn.source"
#: The turn of internet_of_agents: the tasks that are given, then those done, those that wait, and who speaks next.
BEGUN = """
def turn(state, content, to, team, waiting, speaker):
    given = [{"agent": one, "task": content} for one in to if one in team]
"""
NONE_WAITS = f"""{BEGUN}
    return {{"tasks": given if state == "sync" else [], "waiting": [], "speaker": (to or [speaker])[0]}}
"""
ONE_SPEAKS = f"""{BEGUN}
    done = given if state == "sync" else waiting if state == "pause" else []
    waiting = waiting + given if state == "async" else [] if state == "pause" else waiting
    return {{"tasks": done, "waiting": waiting, "speaker": speaker}}
"""
PLANS = "nodes.think.nodes.policy"
#: Blocks of rl_of_thoughts that some questions need.
SOLVING = ("reason", "decompose", "debate", "refine")
THINK, BLOCKS = "nodes.think.nodes", "nodes.think.nodes.act.cases"
CHIEF = "nodes.discuss.nodes.chief"
SWEEP = "nodes.work.nodes.sweep.nodes"
TEAM, WORK = "nodes.lead.nodes.build.nodes", "nodes.lead.nodes.work"
PHASES = "nodes.work.nodes.step.cases"
LOOK = "nodes.solve.nodes.CountGivenObject.nodes.look"

#: The program of autoflow, whose first line says something else.
NO_PROGRAM = """
Carry out the line of this program that `line` names. Write the notes as they are after it, and the line that comes
next; 0 ends.
1. Take the first number of the question away from the total.
2. If a number is left, go to line 1.
3. End."""

#: The machine of stateflow_intercode, in which another state stands for one of them.
TURNS = """
def turn(state, observation):
    now = 'solve' if not state else 'error' if 'No such file' in observation else 'verify'
    return now if now != {!r} else {!r}
"""

#: What best_route has learned, if the small model is thought to be right on every question.
ALWAYS_SMALL = """
{"rule": "value", "threshold": 0.01, "unit": "tokens", "candidates": ["small", "small*3", "large"],
 "reference": "large", "dims": 16, "mean_cost": 60.0, "costs": {"small": {"fixed": 12.0, "per_character": 0.0},
 "large": {"fixed": 60.0, "per_character": 0.0}},
 "heads": {"small": {"models": [{"bias": 18.0}]}, "small*3": {"models": [{"bias": 17.0}]},
 "large": {"models": [{"bias": 1.5}]}}}
"""

WITHOUT: dict[str, dict[str, Settings]] = {
    "agent_occam": {
        "pruned observations": {"nodes.find.observe": None},
        "fewer actions": {"nodes.find.actions.drop": []},
        "plain names": {"nodes.find.actions.rename": {}},
        "a plan that is pruned": {"nodes.find.of.signature": "question, observation, actions -> plan, action"},
    },
    "agent_s2": {
        "re-planning": {"nodes.use.of.nodes.plan.signature": "question -> kind: Literal['line', 'cell'], target"},
        "an expert for each kind of target": {
            "nodes.use.of.nodes.ground.cases.cell.instructions": "Find the line: click line NUMBER."
        },
    },
    "agentgym": {"a history of steps": {"nodes.craft.history": 0}},
    "aries": {
        "a policy that sees the thoughts": {
            PLANS: code(
                "done: list -> move", "def move(done): return ('split', 'solve', 'merge', 'solve', 'stop')[len(done)]"
            )
        },
        "splitting": {"nodes.think.nodes.act.cases.split.source": "def split(thoughts): return thoughts"},
        "merging": {"nodes.think.nodes.act.cases.merge.source": "def merge(thoughts): return thoughts[:1]"},
    },
    "arigraph": {
        "triples that are linked": {"nodes.near.links": 0},
        "links by what they name": {"nodes.watch.nodes.know.links": []},
        "episodes": {"nodes.watch.nodes.live.into": "nowhere"},
    },
    "autoflow": {
        "the line that is to be carried out": {
            "nodes.work.nodes.step.signature": "question, notes -> notes, line: int"
        },
        "jumps": {"nodes.work.rounds": 3},
        "a program that is read": {"nodes.work.nodes.step.instructions": NO_PROGRAM},
    },
    "automl_agent": {
        "a request whose columns are verified": {"nodes.request.rounds": 1},
        "plans that are verified": {"nodes.left.source": "def left(plans, works): return plans"},
        "specialists": {"nodes.judge.nodes.verify.signature": "columns, plan, model -> works: bool"},
        "code that is verified": {
            "nodes.build.nodes.verify": code(
                "value, constant, slope -> verified: bool, answer: float",
                "def verify(value, constant, slope): return {'verified': True, 'answer': constant + slope * value}",
            )
        },
    },
    "blade": {"the data": {"nodes.analyse.given": []}, "looking before deciding": {"nodes.analyse.max_steps": 1}},
    "capo": {
        "a meeting on progress": {"nodes.fetch.settings.meetings": "start"},
        "a plan that is carried on": {
            f"nodes.fetch.players.{who}.signature": "observation -> plan, action" for who in ("ann", "bob")
        },
    },
    "captain": {
        "a checker": {
            "nodes.lead.nodes.seat.source": """
def seat(roles, experts, instructions):
    return [{"role": roles[0], "expert": experts[0], "told": instructions[0]}] if roles else []
"""
        },
        "a second look": {f"{WORK}.rounds": 1},
        "a library of experts": {f"{TEAM}.find.corpus": "../data/places.jsonl"},
        "experts that are written": {
            f"{TEAM}.brief.cases.none": code("role -> told", "def listen(role): return 'You listen.'")
        },
        "a tool": {f"{WORK}.nodes.talk.of.cases.arithmetician.tools": ["python:tools.py:price"]},
        "steps": {"nodes.lead.rounds": 1},
    },
    "cave_agent": {
        "a table given as a variable": {"nodes.narrow.given": []},
        "an object that comes out": {"nodes.narrow.kept": []},
        "cell by cell": {"nodes.narrow.max_steps": 2},
    },
    "chain": {
        "the animal is found first": {"nodes.answer.signature": "facts, subject -> answer"},
        "the person is named first": {"nodes.find.signature": "facts, question -> animal"},
    },
    "chain_of_agents": {
        "pieces": {"nodes.cut.source": "def cut(facts): return [facts]"},
        "notes that are handed on": {"nodes.work.of.signature": "question, piece -> notes"},
    },
    "codeact": {
        "tools called in code": {"nodes.solve.tools": ["python:tools.py:price"]},
        "a result that is read": {"nodes.solve.max_steps": 1},
    },
    "codetree": {
        "a critic beside the test": {"nodes.solve.until": "score >= 0.5"},
        "several strategies": {"nodes.solve.branching": 1, "nodes.solve.evaluations": 8},
        "feedback": {"nodes.solve.of.cases.refine.signature": "question, plan -> answer"},
    },
    "compwob": {
        "what is left is carried on": {"nodes.work.of.signature": "brief, observation -> left, action"},
        "what stands behind after": {"nodes.work.of.instructions": "Do what is asked on the page."},
    },
    "dare": {
        "the profile of the values": {"nodes.ask.source": "def ask(question, profile): return question"},
        "cards with a profile": {"nodes.look.fields": {"text": "text"}},
    },
    "debate": {"members hear each other": {"nodes.solve.rounds": 1}},
    "diff_history": {"observations as what changed": {"nodes.watch.observations": "full"}},
    "entity_deduction": {
        "memory of what was asked": {"nodes.ask.history": 0},
        "one who knows": {"nodes.ask.players.judge.signature": "observation -> action"},
    },
    "hm_rag": {
        "the vote": {
            "nodes.look_up.nodes.vote.source": "def vote(first, second, third): return {'most': first, 'agreed': True}"
        },
        "an expert where they differ": {
            "nodes.look_up.nodes.settle.cases.False": code("first -> finding", "def settle(first): return first")
        },
        "parts": {"nodes.decompose": code("question -> parts: list[str]", "def cut(question): return [question]")},
    },
    "graph_team": {
        "the method that is looked up": {"nodes.code.signature": "question, graph -> found"},
        "a reasoner where code fails": {"nodes.check.source": "def check(found): return 'coded'"},
        "mending what fails": {"nodes.code.max_steps": 2},
        "a tool in code": {"nodes.code.tools": ["sandbox:session"]},
    },
    "iagents": {
        "a list of what is open": {
            "nodes.talk.nodes.navigate.signature": "question, said_so_far, said -> open: list[str]"
        },
    },
    "internet_of_agents": {
        "members found by skill": {"nodes.discover.of.query": "question"},
        "tasks that wait": {TURN: NONE_WAITS},
        "passing the word": {TURN: ONE_SPEAKS},
    },
    "master": {
        "how sure it is": {"nodes.solve.judge.nodes.reward.source": "def reward(worth, confidence): return worth"},
        "the parent's work": {"nodes.solve.of.signature": "question -> answer"},
        "Monte Carlo": {"nodes.solve.order": "bfs"},
    },
    "mag_sql": {
        "from the query before": {
            "nodes.write.nodes.query.nodes.draft.signature": "schema, columns, part, outcome -> sql"
        },
        "mended by what the database says": {"nodes.write.nodes.query.rounds": 1},
        "the schema that is linked": {
            "nodes.write.nodes.query.nodes.draft.signature": "part, sql, outcome -> sql",
        },
    },
    "mobile_agent": {
        "the procedure": {"nodes.use.nodes.next.signature": "question, done, screen -> action"},
        "a person who is asked": {"nodes.use.nodes.weigh.source": "def weigh(action): return False"},
        "what the screen shows": {"nodes.use.nodes.next.signature": "question, documents, done -> action"},
    },
    "poact": {
        "a policy that switches": {
            "nodes.work.nodes.control.instructions": "Go on.",
            "nodes.work.nodes.usual.source": "def usual(main): return 'plan'",
        },
        "tools of the phase alone": {
            f"{PHASES}.{phase}.tools": [
                "sandbox:session#booking",
                *(f"python:tools.py:{t}" for t in ("quote", "reserve", "pay")),
            ]
            for phase in ("reserve", "pay")
        },
        "variables over all phases": {f"{PHASES}.pay.tools": ["sandbox:session", "python:tools.py:pay"]},
    },
    "se_agent": {
        "several trajectories": {"nodes.start.source": "def start(question): return ['from the left']"},
        "recombination": {
            "nodes.recombine.instructions": "Take the first.",
            "nodes.refine.signature": "question, pool -> answer",
        },
        "revision": {"nodes.revise.gather": {"pool": "revised"}, "nodes.revise.of.instructions": "Repeat it."},
    },
    "simura": {
        "predicted states": {"nodes.descend.of.nodes.choose.signature": "question, candidates -> action"},
        "a world model": {"nodes.descend.of.nodes.simulate.of.instructions": "Guess where this leads."},
    },
    "swe_search": {
        "a value in words": {"nodes.search.of.signature": "question, patch -> patch"},
        "a jury": {"nodes.decide": code("patch -> answer", "def take(patch): return patch")},
        "Monte Carlo": {"nodes.search.order": "bfs"},
    },
    "toolshed": {
        "enriched cards": {"nodes.look.of.fields": {"text": "text"}},
        "parts of the request": {
            "nodes.expand": code("question -> asks: list", "def ask(question): return [question]")
        },
        "an order by a model": {"nodes.look.of.rerank": None},
    },
    "two_heads": {
        "a chief": {
            CHIEF: code("talk -> speaker, depth", "def chief(talk): return {'speaker': 'solver', 'depth': 'shallow'}")
        },
        "depth": {"nodes.discuss.nodes.turn.cases.checker.signature": "question, talk -> said"},
    },
    "vidorag": {
        "a cut by the scores": {"nodes.cut.source": "def cut(ranked): return ranked[:1]"},
        "several turns": {"nodes.look.rounds": 1},
    },
    "webnav": {"a beam": {"nodes.find.width": 1}},
    "webpilot": {
        "a plan by where one is": {"nodes.work.nodes.plan.signature": "question, done -> subtask"},
        "tree search": {"nodes.work.nodes.search.order": "greedy"},
        "Monte Carlo": {"nodes.work.nodes.search.order": "bfs"},
    },
    "toolemu": {"earlier calls": {"nodes.serve.nodes.pay.predict": "to, amount: int -> result"}},
    "gen_rewrite": {
        "mending": {f"{SWEEP}.mend.nodes.write.signature": "schema, query, rules, rewrite -> rewrite, rule"},
        "another try": {"nodes.work.rounds": 1},
        "rules that are kept": {f"{SWEEP}.keep.into": "elsewhere"},
    },
    "toolchain": {
        "steps that are cheap where they are named often": {
            "nodes.plan.judge.nodes.step": code("plan -> cost: float", "def cost(plan): return 1.0")
        },
        "what an earlier call returns": {"nodes.make.tools": ["python:tools.py:add"]},
    },
    "contest": {"a competition on training rows": {"optimize": []}},
    "jury": {
        "several jurors": {
            "nodes.sort.of": [
                {
                    "predict": "text -> label: Literal['billing', 'technical', 'shipping', 'returns', 'account']",
                    "instructions": "Sort the request by its main problem.",
                }
            ]
        }
    },
    "forge": {
        "programs that are written": {"optimize": []},
        "several of them": {"optimize": [{"forge": {"kind": "heuristic", "samples": 1}}]},
    },
    "llm_heuristics": {
        "a heuristic that is written": {"optimize": []},
        "several of them": {"optimize": [{"forge": {"kind": "heuristic", "samples": 1}}]},
    },
    "stateflow_intercode": {
        "a state for errors": {"nodes.work.of.nodes.turn.source": TURNS.format("error", "verify")},
        "a state that verifies": {"nodes.work.of.nodes.turn.source": TURNS.format("verify", "solve")},
        "a history that the states share": {"nodes.work.history": 0},
    },
    "research_code_agent": {
        "a long memory": {"nodes.work.nodes.long.k": 0},
        "a short memory": {"nodes.work.nodes.short.k": 0},
        "variables that stay": {"nodes.work.nodes.act.cases.run.tool": "sandbox:session"},
    },
    "omni_search": {
        "what was found": {"nodes.gather.nodes.plan.signature": "question, asked -> source, ask"},
        "pictures": {"nodes.gather.nodes.look.cases.pictures.corpus": "../data/places.jsonl"},
        "steps": {"nodes.gather.rounds": 1},
    },
    "reaper": {
        "two sources": {
            "nodes.fetch.of": {
                "kind": "tool",
                "tool": "python:corpus.py:search",
                "arguments": {"query": "ask"},
                "output": "found",
            }
        },
        "all steps in one plan": {"nodes.fetch.max_items": 1},
    },
    "long_writer": {
        "a plan of points": {
            "nodes.plan": code("question -> plan: list", 'def plan(question): return [{"point": "all", "words": 36}]')
        },
        "lengths": {"nodes.write.of.signature": "question, point, text -> paragraph"},
        "all that was written before": {"nodes.write.of.signature": "question, plan, point, words -> paragraph"},
    },
    "agent_issues": {
        "what was read": {"nodes.mend.history": 0},
        "steps": {"nodes.mend.max_steps": 1},
    },
    "ml_experiments": {
        "steps": {"nodes.improve.max_steps": 1},
        "what was read": {"nodes.improve.history": 0},
    },
    "one_day": {
        "reading the attachments": {"nodes.work.of.instructions": "Write the file that is asked for, and submit."},
        "a file that is handed in": {"nodes.work.max_steps": 1},
    },
    "agentif": {"the instructions": {"nodes.serve.signature": "question -> answer"}},
    "ask_before_acting": {
        "asking": {"nodes.fetch.of.instructions": "Open a door. Write: open ROOM."},
        "a person who knows": {"nodes.fetch.of.user.knows": ["question"]},
    },
    "adaptive_rag": {
        "the level decides": {"nodes.judge.enabled": False},
        "answering at once": {
            "nodes.usual.source": "def usual(question): return 'simple'",
            "nodes.judge.enabled": False,
        },
        "steps": {"nodes.answer.cases.several.max_steps": 2},
    },
    "amber": {
        "a memory that is carried on": {
            "nodes.gather.nodes.remember.signature": "question, sentences -> memory, enough: bool"
        },
        "pages that are sifted": {"nodes.gather.nodes.left.source": "def left(pages, useful): return pages"},
        "sentences that are sifted": {
            "nodes.gather.nodes.remember.signature": "question, memory, kept -> memory, enough: bool"
        },
        "an end when it suffices": {"nodes.gather.until": None},
    },
    "knowledge_cache": {
        "what is known says what to search": {"nodes.gather.nodes.ask.signature": "question -> query"},
        "notes of the row": {"nodes.gather.nodes.keep.into": "elsewhere"},
        "what is known says when it is enough": {
            "nodes.gather.nodes.judge.signature": "question, gained -> enough: bool"
        },
    },
    "sibyl": {
        "a jury that debates": {
            "nodes.settle.nodes.jury": {
                "kind": "ensemble",
                "of": [
                    {"predict": "question, workspace, answer -> fault", "instructions": f"You check the {seen}."}
                    for seen in ("sources", "logic", "form")
                ],
                "samples": 1,
            }
        },
        "a workspace that the jury reads": {"nodes.settle.nodes.jury.of.signature": "question, answer -> fault"},
        "a draft that is written anew": {"nodes.settle.rounds": 1},
        "a few searches": {"nodes.explore.rounds": 1},
    },
    "glee": {"the history of offers": {"nodes.haggle.history": 0}},
    "gta": {
        "tools that see": {f"{LOOK}.signature": "image, text -> count: int"},
    },
    "mindsearch": {
        "what was found": {"nodes.find.nodes.plan.signature": "question, asked -> queries: list[str]"},
        "waves": {"nodes.find.rounds": 1},
        "searches at once": {"nodes.find.nodes.look.max_items": 1},
    },
    "formal_specification": {
        "a formula over the steps": {"policy.rules": []},
        "nothing else is offered": {"nodes.book.offer": "all"},
    },
    "boxing_gym": {
        "experiments that tell": {"nodes.measure.of.instructions": "Do an experiment: weigh NUMBER."},
        "a theory in words": {"nodes.predict.signature": "question -> answer"},
        "information as the world's score": {
            "metric": "world",
            "nodes.measure.of.instructions": "Do an experiment: weigh NUMBER.",
        },
    },
    "own_examples": {
        "examples": {"nodes.play.nodes.look.k": 0},
        "by the situation of the step": {
            "nodes.play.nodes.look.signature": "question -> examples",
            "nodes.play.nodes.look.entries": [
                {"inputs": {"question": "a door that is shut"}, "outputs": {"action": "turn the key"}},
                {"inputs": {"question": "a dog that growls"}, "outputs": {"action": "give it a bone"}},
            ],
        },
    },
    "shortcuts_bench": {
        "places to fill in": {"nodes.plan.instructions": "Write the calls that do this, in order, as JSON."},
        "order": {"nodes.plan.instructions": "Write the calls that do this, in any order."},
    },
    "plan_and_execute": {
        "a plan": {"nodes.execute.signature": "question -> findings"},
        "execution with tools": {"nodes.execute.tools": ["python:tools.py:price"]},
    },
    "ecoact": {
        "registration": {"nodes.solve.register": "all"},
    },
    "plangen": {
        "a selection": {"nodes.select.enabled": False},
        "a verifier": {
            f"nodes.plan.cases.{path}.verifier": code("plan -> score: float", "def score(plan): return 0.5")
            for path in ("best_of_n", "tree_of_thought.nodes.begin", "tree_of_thought.nodes.go_on", "rebase")
        },
        "constraints": {"nodes.constrain": code("question -> constraints", "def none(question): return 'none'")},
    },
    "stateflow_bash": {
        "a state for errors": {"nodes.solve.states.error.instructions": "Go on."},
        "a state that looks": {"nodes.solve.states.verify.instructions": "Go on."},
    },
    "self_consistency": {"several answers": {"nodes.solve.samples": 1}},
    "selforg": {"who hears whom": {"nodes.solve.rounds": 0}},
    "react": {"a tool": {"nodes.solve.tools": ["python:tools.py:price"]}},
    "small_agent": {
        "several actions": {"nodes.solve.actions": 1},
        "a first thought": {"nodes.solve.first_thought": False},
    },
    "malt": {"a verifier": {"nodes.refine.signature": "question, draft -> answer"}},
    "mixture_of_agents": {"proposers": {"nodes.aggregate.signature": "question, first_answer -> answer"}},
    "rci": {"criticism": {"nodes.solve.rounds": 0}},
    "rl_of_thoughts": {
        "choices that are learned": {f"{THINK}.choose.learned": ""},
        "an order that depends on the question": {
            f"{THINK}.choose": code(
                "course: list -> block",
                "def order(course): return ('decompose', 'reason', 'terminate', 'terminate')[len(course)]",
            )
        },
        "ratings of the partial solution": {f"{THINK}.look.enabled": False},
        **{block: {f"{BLOCKS}.{block}": code("notes -> notes", "def none(notes): return notes")} for block in SOLVING},
    },
    "step_back": {"a rule": {"nodes.answer.signature": "question -> answer"}},
    "tree_of_thoughts": {
        "several thoughts": {"nodes.think.samples": 1, "nodes.conclude.samples": 1},
        "a judge": {"nodes.think.decide": "vote"},
    },
    "graph_of_thoughts": {
        "merging": {"nodes.merge.source": "def merge(left_sum, right_sum): return int(left_sum)"},
        "splitting": {"nodes.split.source": "def split(question): return {'left': question, 'right': '0'}"},
    },
    "dylan": {"rounds": {"nodes.solve.rounds": 1}},
    "best_route": {"a prediction of who is good enough": {"nodes.solve.learned": ALWAYS_SMALL}},
    "eu_agent_bench": {"the law": {"nodes.serve.instructions": "Do what is asked."}},
    "gta_steps": {"what came before": {"nodes.walk.of.signature": "question, files, tools -> action"}},
}
