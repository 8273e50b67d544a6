# openai
# init: agent.py:sort_letter
from openai import OpenAI

INSTRUCTIONS = """You sort the letters of a shop.
Answer with the desk: billing, technical, shipping or returns."""


def sort_letter(letter: str, *, model: str = "gpt-4o-mini") -> dict:
    client = OpenAI()
    answer = client.responses.create(model=model, instructions=INSTRUCTIONS, input=letter)
    return {"desk": answer.output_text, "model": model}
