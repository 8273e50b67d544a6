# openai
# init: agent.py:SorterAgent
from openai import OpenAI


class SorterAgent:
    """An agent that sorts letters."""

    system_prompt = "You sort the letters of a shop. Name the desk: billing, technical, shipping or returns."

    def __init__(self, model: str = "gpt-4o-mini"):
        self.model = model
        self.client = OpenAI()

    def run(self, letter: str) -> str:
        answer = self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "system", "content": self.system_prompt}, {"role": "user", "content": letter}],
        )
        return answer.choices[0].message.content


if __name__ == "__main__":
    print(SorterAgent().run(input("Letter: ")))
