# openai
from openai import OpenAI

LETTER = "My parcel has not arrived, and I need it on Friday."
answer = OpenAI().chat.completions.create(
    model="gpt-4o-mini",
    messages=[{"role": "user", "content": f"Which desk of the shop answers this letter? {LETTER}"}],
)
print(answer.choices[0].message.content)
