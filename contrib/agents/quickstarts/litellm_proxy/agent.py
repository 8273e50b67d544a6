# litellm[proxy], openai
# https://docs.litellm.ai/docs/proxy/quick_start
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

from openai import OpenAI

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
proxy = subprocess.Popen(
    ["litellm", "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)],
    env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
try:
    while proxy.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=1)
            break
        except OSError:
            time.sleep(0.1)
    answer = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-office").chat.completions.create(
        model="sorter",
        messages=[
            {"role": "system", "content": "You sort the post of an office. Name the kind of the text: a, b, c or d."},
            {"role": "user", "content": json.load(sys.stdin)["text"]},
        ],
    )
    print(answer.choices[0].message.content)
finally:
    proxy.terminate()
    proxy.wait()
