# guidance, openai
# https://guidance.readthedocs.io/en/stable/generated/guidance.models.OpenAI.html
import json
import sys

from guidance import assistant, gen, models, system, user

lm = models.OpenAI("gpt-4o-mini", echo=False)
with system():
    lm += "You sort the post of an office. Name the kind of the text: a, b, c or d."
with user():
    lm += "Which kind is this text? " + json.load(sys.stdin)["text"]
with assistant():
    lm += gen("label", max_tokens=20)
print(lm["label"])
