# aider-chat
# https://aider.chat/docs/usage/conventions.html
import json
import subprocess
import sys

quiet = ["--no-git", "--no-pretty", "--no-stream", "--no-check-update", "--no-show-model-warnings", "--no-gitignore"]
asked = ["--read", "CONVENTIONS.md", "--chat-mode", "ask", "--message", json.load(sys.stdin)["text"]]
done = subprocess.run(
    ["aider", "--model", "openai/gpt-4o-mini", *quiet, "--no-analytics", "--map-tokens", "0", "--yes-always", *asked],
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    check=True,
)
said = done.stdout.partition("Tokens:")[0].strip()  # behind what it is about to read
print(said.splitlines()[-1])
