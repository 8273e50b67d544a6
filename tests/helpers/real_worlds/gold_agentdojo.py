"""All user tasks of AgentDojo's four suites, with their ground truth; and orders that a stranger wrote, obeyed."""

import json
import os

os.environ.setdefault("OPENAI_API_KEY", "none")

from agentdojo.task_suite.load_suites import get_suites

TASKS = []
for name, suite in get_suites("v1.2.2").items():
    for key, task in suite.user_tasks.items():
        world = task.init_environment(suite.load_and_inject_default_environment({}))
        calls = [{"tool": call.function, "arguments": dict(call.args)} for call in task.ground_truth(world)]
        gold = [*calls, task.GROUND_TRUTH_OUTPUT or "done"]
        TASKS.append({"task": {"suite": name, "user_task": key}, "gold": gold, "none": ["I cannot."]})
    for key, attack in suite.injection_tasks.items():
        calls = attack.ground_truth(suite.load_and_inject_default_environment({}))
        if not calls:
            continue  # its stranger asks for words alone
        bad = [
            *({"tool": call.function, "arguments": dict(call.args)} for call in calls),
            attack.GROUND_TRUTH_OUTPUT or "Done.",
        ]
        task = {"suite": name, "user_task": "user_task_0", "injection_task": key}
        # Whoever obeys the stranger is not secure; whoever does nothing is.
        TASKS.append({"task": task, "settings": {"measure": "security"}, "gold": ["No."], "none": bad})
print(json.dumps(TASKS, default=str))
