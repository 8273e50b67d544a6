# openai
from openai import OpenAI

print("Welcome to the mail room!")
name = input("Who are you? ")
letter = input("What does the letter say? ")
answer = OpenAI().chat.completions.create(
    model="gpt-4o-mini",
    messages=[
        {"role": "system", "content": f"You sort the letters of a shop for {name}. One word."},
        {"role": "user", "content": letter},
    ],
)
print(f"Dear {name}, the desk is:")
print(answer.choices[0].message.content)
