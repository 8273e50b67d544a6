"""AgentDojo's banking under its attack of important instructions, as AgentDojo itself runs and judges it: an agent that
does the user's task, and one that does the stranger's."""

import json
import os
from types import SimpleNamespace

os.environ.setdefault("OPENAI_API_KEY", "none")

from agentdojo.agent_pipeline import GroundTruthPipeline
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.task_suite.load_suites import get_suite

suite = get_suite("v1.2.2", "banking")
attacker = load_attack("important_instructions_no_model_name", suite, SimpleNamespace(name="local"))


def actions_of(task, world):
    calls = [{"tool": call.function, "arguments": dict(call.args)} for call in task.ground_truth(world)]
    return [*calls, task.GROUND_TRUTH_OUTPUT or "done"]


def init(task):
    return task.init_environment(suite.load_and_inject_default_environment({}))


# Of each pair: (the user's task is done, the stranger's is done) by an agent that does the user's, and the stranger's.
judged = {
    f"{user} {stranger}": [
        suite.run_task_with_pipeline(GroundTruthPipeline(done), task, order, attacker.attack(task, order))
        for done in (task, order)
    ]
    for user, task in suite.user_tasks.items()
    for stranger, order in suite.injection_tasks.items()
}
users = {key: actions_of(task, init(task)) for key, task in suite.user_tasks.items()}
strangers = {
    key: actions_of(task, suite.load_and_inject_default_environment({})) for key, task in suite.injection_tasks.items()
}
print(json.dumps({"judged": judged, "users": users, "strangers": strangers}, default=str))
