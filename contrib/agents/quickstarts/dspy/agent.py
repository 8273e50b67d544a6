# dspy
# https://dspy.ai/learn/programming/signatures/
import json
import sys
from typing import Literal

import dspy


class Sort(dspy.Signature):
    """You sort the post of an office.

    Name the kind of the text.
    """

    text: str = dspy.InputField(desc="What came to the office today.")
    label: Literal["a", "b", "c", "d"] = dspy.OutputField(desc="The kind that the text names itself.")


dspy.configure(lm=dspy.LM("openai/gpt-4o-mini"))
print(dspy.Predict(Sort)(text=json.load(sys.stdin)["text"]).label)
