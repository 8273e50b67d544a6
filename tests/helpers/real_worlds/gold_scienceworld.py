"""Tasks of ScienceWorld with the simulator's own gold actions."""

import json

from scienceworld import ScienceWorldEnv

TASKS = []
house = ScienceWorldEnv("", envStepLimit=200)
for name in ("boil", "use-thermometer"):
    house.load(name, 0, "easy", generateGoldPath=True)
    gold = house.get_gold_action_sequence()
    settings = {"simplification": "easy", "limit": 200}
    TASKS.append({"task": {"task": name}, "settings": settings, "gold": gold, "none": ["wait1", "wait1"]})
print(json.dumps(TASKS))
