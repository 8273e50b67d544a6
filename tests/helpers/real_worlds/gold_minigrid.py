"""Tasks of BabyAI and MiniGrid, with the actions of the library's own bot."""

import json

import gymnasium
import minigrid  # noqa: F401
from minigrid.utils.baby_ai_bot import BabyAIBot

ACTIONS = ["turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done"]
TASKS = []
for name in ("BabyAI-GoToRedBall-v0", "BabyAI-UnlockLocal-v0", "BabyAI-PickupLoc-v0", "BabyAI-PutNextLocal-v0"):
    made = gymnasium.make(name)
    for seed in (1, 2):
        made.reset(seed=seed)
        bot, gold, done = BabyAIBot(made), [], False
        while not done:
            action = bot.replan()
            gold.append(ACTIONS[action])
            _, _, done, cut, _ = made.step(action)
            assert not cut
        TASKS.append({"task": {"seed": seed}, "settings": {"id": name}, "gold": gold, "none": ["done", "turn left"]})
print(json.dumps(TASKS))
