# anthropic
import anthropic

letter = input("Letter: ")
answer = anthropic.Anthropic().messages.create(
    model="claude-haiku-4-5",
    max_tokens=100,
    system="You sort the letters of a shop. Say which desk answers: billing, technical, shipping or returns.",
    messages=[{"role": "user", "content": letter}],
)
print("\nDesk:", answer.content[0].text)
