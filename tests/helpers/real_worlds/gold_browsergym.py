"""Tasks of MiniWoB++ whose goal names what to click, found in the tree. argv: the folder of our adapter."""

import json
import re
import runpy
import sys

World = runpy.run_path(f"{sys.argv[1]}/browsergym.py")["World"]
TASKS = []
for name, seed, wanted in (("click-test", 3, "Click Me!"), ("click-button", 3, ""), ("click-button", 4, "")):
    world, task = World(), {"id": f"miniwob.{name}", "seed": seed}
    tree, goal = world.reset(task), world.brief()
    named = wanted or re.findall(r'"([^"]+)"', goal)[0]
    found = re.search(rf"\[(\d+)\] (?:button|link|generic|StaticText) '{re.escape(named)}'", tree)
    assert found, (goal, tree)
    world.made.close()
    TASKS.append({"task": task, "gold": [f'click("{found[1]}")'], "none": ["noop()", "noop()"]})
print(json.dumps(TASKS))
