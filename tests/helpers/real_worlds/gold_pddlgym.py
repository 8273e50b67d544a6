"""The first problem of the blocks world, four blocks on the table to be a tower, with its plan."""

import json

import pddlgym

made = pddlgym.make("PDDLEnvBlocks-v0")
made.fix_problem_index(0)
goal = sorted(str(part) for part in made.reset()[0].goal.literals)
assert goal == ["on(b:block,a:block)", "on(c:block,b:block)", "on(d:block,c:block)"], goal
PLAN = ["pickup(b)", "stack(b,a)", "pickup(c)", "stack(c, b)", "pickup(d)", "stack(d,c)"]
print(json.dumps([{"task": {"problem": 0}, "gold": PLAN, "none": ["putdown(a)", "wait"]}]))
