# openai
from openai import OpenAI

client, said = OpenAI(), [{"role": "system", "content": "You sort letters of customers by desk. One word."}]
print("Paste a letter; 'quit' ends.")
while True:
    try:
        letter = input("> ")
    except EOFError:
        break
    if letter == "quit":
        break
    said.append({"role": "user", "content": letter})
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=said).choices[0].message.content
    said.append({"role": "assistant", "content": answer})
    print(answer)
