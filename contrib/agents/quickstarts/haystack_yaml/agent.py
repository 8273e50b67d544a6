# haystack-ai
# https://docs.haystack.deepset.ai/docs/serialization
import json
import sys
from pathlib import Path

from haystack import Pipeline

pipeline = Pipeline.loads(Path("pipeline.yaml").read_text())
found = pipeline.run({"prompt": {"text": json.load(sys.stdin)["text"]}})
print(found["llm"]["replies"][0].text)
