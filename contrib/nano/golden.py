"""Write the logits that transformers gives for the bundled weights, so that tests need no torch.

python contrib/nano/golden.py
"""

import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "plugins" / "standard" / "workbench_nano" / "weights"
CHATS = [
    [
        {"role": "system", "content": "Classify the ticket.\nlabel: one of billing, shipping"},
        {"role": "user", "content": "text: my invoice is wrong\nlabel:"},
        {"role": "assistant", "content": "billing"},
        {"role": "user", "content": "text: our parcel got lost . it can wait\nlabel:"},
    ],
    [{"role": "user", "content": "question: 3 + 4 + 5\nsteps:"}],
]


def main() -> None:
    model = AutoModelForCausalLM.from_pretrained(WEIGHTS, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)
    cases = []
    for chat in CHATS:
        ids = list(tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"])
        with torch.no_grad():
            last = model(torch.tensor([ids])).logits[0, -1]
        cases.append({"chat": chat, "ids": ids, "last_logits": [round(x, 4) for x in last.tolist()]})
    (ROOT / "tests" / "data" / "nano_logits.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
