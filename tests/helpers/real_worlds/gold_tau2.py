"""Every eighth task of tau2 in three domains, with the actions that it names, by whom it names, and the facts told."""

import json

from inspect_evals.tau2.data_model.tasks import Task
from inspect_evals.tau2.utils import TAU2_DATA_DIR, load_file

#: What changes nothing. A task of these alone is solved by doing nothing, and tests nothing here.
READS = ("get_", "search_", "list_", "find_", "calculate", "transfer_", "check_")
FILES = {"airline": "tasks.json", "retail": "tasks.json", "telecom": "tasks_small.json"}


def main(task):
    """The turns: a text hands over to the other side. The customer begins, and ends."""
    turns, side = ["Hello."], "agent"
    for action in task.evaluation_criteria.actions or []:
        wanted = "user" if action.requestor == "user" else "agent"
        if wanted != side:
            turns.append("Please go on.")
            side = wanted
        turns.append({"tool": action.name, "arguments": action.arguments})
    if side == "user":
        turns.append("Please go on.")
    facts = ". ".join(task.evaluation_criteria.communicate_info or [])
    return [*turns, f"Done. {facts}", "###STOP###"]


TASKS = []
for domain, file in FILES.items():
    for one in load_file(TAU2_DATA_DIR / "domains" / domain / file)[::8]:
        task = Task.model_validate(one)
        named = [action.name for action in task.evaluation_criteria.actions or []]
        if all(name.startswith(READS) for name in named):
            continue
        none = ["Hello.", "I cannot help.", "###STOP###"]
        TASKS.append({"task": {"domain": domain, "id": task.id}, "gold": main(task), "none": none})
print(json.dumps(TASKS))
