# openai
"""Sorts one letter, which is set below."""

from openai import OpenAI

MODEL = "gpt-4o-mini"
LETTER_FILE = "letter.txt"
PROMPT = """You sort the letters of a shop.
Name the desk: billing, technical, shipping or returns.

Letter:
{letter}
"""


def main():
    with open(LETTER_FILE) as f:
        letter = f.read()
    answer = OpenAI().chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": PROMPT.format(letter=letter)}]
    )
    with open("result.txt", "w") as f:
        f.write(answer.choices[0].message.content)
    print("Wrote result.txt")


if __name__ == "__main__":
    main()
