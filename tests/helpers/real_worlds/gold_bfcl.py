"""Every twentieth task of BFCL in several turns, with the calls of their ground truth."""

import ast
import json
from pathlib import Path

import bfcl_eval
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

DATA = Path(bfcl_eval.__file__).parent / "data"
NAMES = {}
for file in MULTI_TURN_FUNC_DOC_FILE_MAPPING.values():
    for line in (DATA / "multi_turn_func_doc" / file).read_text().splitlines():
        function = json.loads(line)
        NAMES[function["name"]] = list(function["parameters"]["properties"])


def as_call(text):
    call = ast.parse(text, mode="eval").body
    placed = dict(zip(NAMES[call.func.id], call.args, strict=False))
    given = {**placed, **{word.arg: word.value for word in call.keywords}}
    return {"tool": call.func.id, "arguments": {name: ast.literal_eval(value) for name, value in given.items()}}


TASKS = []
for kind in ("base", "miss_func", "miss_param", "long_context"):
    for line in (DATA / "possible_answer" / f"BFCL_v4_multi_turn_{kind}.json").read_text().splitlines()[::20]:
        entry = json.loads(line)
        gold, none = [], []
        for turn in entry["ground_truth"]:
            gold += [*map(as_call, turn), "Done."]
            none += ["Done."]
        TASKS.append({"task": {"id": entry["id"]}, "gold": gold, "none": none})
print(json.dumps(TASKS))
