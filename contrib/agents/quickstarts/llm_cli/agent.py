# llm
# https://llm.datasette.io/en/stable/templates.html
import json
import subprocess
import sys

command = ["llm", "-m", "gpt-4o-mini", "--no-log", "-t", "sorter.yaml", json.load(sys.stdin)["text"]]
print(subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout)
