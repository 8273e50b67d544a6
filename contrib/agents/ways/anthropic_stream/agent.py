# anthropic
import json
import sys

from anthropic import Anthropic

request = json.loads(sys.stdin.read())
with Anthropic().messages.stream(
    model="claude-sonnet-4-5",
    max_tokens=200,
    system=[{"type": "text", "text": "Name the desk for the message of a customer. One word."}],
    messages=[{"role": "user", "content": f"<message>{request['message']}</message>"}],
) as stream:
    answer = "".join(stream.text_stream)
print(json.dumps({"result": {"desk": answer, "length": len(answer)}}))
