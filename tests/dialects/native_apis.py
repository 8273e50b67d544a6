"""Anthropic's Messages, Gemini's generateContent and Bedrock's Converse, read as chat completions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.dialects.dialect import Asked, Count, Dialect, Json, Refused, Said
from tests.dialects.rules import check_form

Sign = Callable[[str, str], None]


def _call(number: str, name: str, arguments: Any) -> Json:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class Messages:
    """https://docs.claude.com/en/api/messages"""

    path = "/messages"

    def read(self, asked: Asked) -> Json:
        if not isinstance(asked.body.get("max_tokens"), int):
            raise Refused("max_tokens: Field required")
        messages: list[Json] = []
        if asked.body.get("system"):
            messages.append({"role": "system", "content": asked.body["system"]})
        open_calls = set[str]()
        for number, one in enumerate(asked.messages):
            if one["role"] not in ("user", "assistant"):
                raise Refused(f'messages.{number}.role: Input should be "user" or "assistant"')
            messages += self._turn(number, one, open_calls)
        if open_calls:
            raise Refused(f"`tool_use` ids were found without `tool_result` blocks: {', '.join(open_calls)}.")
        return {**asked.body, "messages": messages}

    def _turn(self, number: int, one: Json, open_calls: set[str]) -> list[Json]:
        content = one["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        said, calls, results = list[str](), list[Json](), list[Json]()
        for block in blocks:
            match block["type"]:
                case "text":
                    if not block["text"]:
                        raise Refused("messages: text content blocks must be non-empty")
                    said.append(block["text"])
                case "tool_use":
                    calls.append(_call(block["id"], block["name"], block["input"]))
                    open_calls.add(block["id"])
                case "tool_result":
                    if block["tool_use_id"] not in open_calls:
                        raise Refused(f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks")
                    open_calls.discard(block["tool_use_id"])
                    results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]})
        turn: Json = {"role": one["role"], "content": "\n".join(said), **({"tool_calls": calls} if calls else {})}
        return [*results, *([turn] if said or calls else [])]

    def write(self, dialect: Dialect, said: Said, asked: Asked, sign: Sign) -> Json:
        count = Count()
        uses = [
            {"type": "tool_use", "id": f"toolu_{len(asked.messages)}{n}", "name": name, "input": arguments}
            for n, (name, arguments) in enumerate(said.calls)
        ]
        ends = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "refusal": "refusal"}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": asked.body["model"],
            "content": [*([{"type": "text", "text": said.text}] if said.text else []), *uses],
            "stop_reason": ends[said.end],
            "stop_sequence": None,
            "usage": {
                "input_tokens": count.prompt - count.cached - count.written,
                "cache_read_input_tokens": count.cached,
                "cache_creation_input_tokens": count.written,
                "output_tokens": count.answer,
                "service_tier": "standard",
            },
        }


class GenerateContent:
    """https://ai.google.dev/api/generate-content"""

    path = "/models/gemini-2.5-flash:generateContent"

    def read(self, asked: Asked) -> Json:
        messages: list[Json] = []
        if system := asked.body.get("systemInstruction"):
            messages.append({"role": "system", "content": "".join(part["text"] for part in system["parts"])})
        for one in asked.body["contents"]:
            if one["role"] not in ("user", "model"):
                raise Refused("Please use a valid role: user, model.")
            calls = [_call(p["functionCall"]["name"], p["functionCall"]["name"], p["functionCall"].get("args"))
                     for p in one["parts"] if "functionCall" in p]  # fmt: skip
            for part in one["parts"]:
                if (call := part.get("functionCall")) and part.get("thoughtSignature") != asked.signed.get(
                    call["name"]
                ):
                    raise Refused("Function call is missing a thought_signature in functionCall parts.")
                if response := part.get("functionResponse"):
                    told = {
                        "role": "tool",
                        "tool_call_id": response["name"],
                        "content": json.dumps(response["response"]),
                    }
                    messages.append(told)
            texts = "".join(part.get("text", "") for part in one["parts"])
            if texts or calls:
                role = "assistant" if one["role"] == "model" else "user"
                messages.append({"role": role, "content": texts, **({"tool_calls": calls} if calls else {})})
        return {"messages": messages, "tools": asked.body.get("tools")}

    def write(self, dialect: Dialect, said: Said, asked: Asked, sign: Sign) -> Json:
        count = Count()
        parts: list[Json] = [{"text": said.text}] if said.text else []
        for number, (name, arguments) in enumerate(said.calls):
            sign(name, signature := f"c2ln{number:04d}")
            parts.append({"functionCall": {"name": name, "args": arguments}, "thoughtSignature": signature})
        ends = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "refusal": "SAFETY"}
        return {
            "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": ends[said.end]}],
            "usageMetadata": {
                "promptTokenCount": count.prompt,
                "cachedContentTokenCount": count.cached,
                "candidatesTokenCount": count.answer - count.thoughts,
                "thoughtsTokenCount": count.thoughts,
                "totalTokenCount": count.prompt + count.answer,
            },
            "modelVersion": "gemini-2.5-flash",
        }


class Converse:
    """https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html"""

    path = "/model/anthropic.claude-3-5-sonnet-20241022-v2:0/converse"

    def read(self, asked: Asked) -> Json:
        messages: list[Json] = []
        if system := asked.body.get("system"):
            messages.append({"role": "system", "content": "".join(block["text"] for block in system)})
        before = ""
        for one in asked.messages:
            if one["role"] not in ("user", "assistant") or one["role"] == before:
                raise Refused("A conversation must alternate between user and assistant roles.")
            before, blocks = one["role"], one["content"]
            if not blocks or any(block.get("text") == "" for block in blocks):
                raise Refused("The text field in the ContentBlock object is blank. Add text to the text field.")
            uses = [block["toolUse"] for block in blocks if "toolUse" in block]
            for told in (block["toolResult"] for block in blocks if "toolResult" in block):
                content = "".join(part["text"] for part in told["content"])
                messages.append({"role": "tool", "tool_call_id": told["toolUseId"], "content": content})
            calls = [_call(use["toolUseId"], use["name"], use["input"]) for use in uses]
            texts = "".join(block.get("text", "") for block in blocks)
            if texts or calls:
                messages.append({"role": before, "content": texts, **({"tool_calls": calls} if calls else {})})
        check_form(replace(asked, body={"messages": messages}))
        if any(m.get("tool_calls") for m in messages) and not asked.body.get("toolConfig"):
            raise Refused("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
        return {"messages": messages, "tools": asked.body.get("toolConfig", {}).get("tools")}

    def write(self, dialect: Dialect, said: Said, asked: Asked, sign: Sign) -> Json:
        count = Count()
        content: list[Json] = [{"text": said.text}] if said.text else []
        for number, (name, arguments) in enumerate(said.calls):
            used = f"tooluse_{len(asked.messages)}{number}"
            content.append({"toolUse": {"toolUseId": used, "name": name, "input": arguments}})
        ends = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "refusal": "guardrail_intervened"}
        return {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": ends[said.end],
            "usage": {
                "inputTokens": count.prompt - count.cached - count.written,
                "cacheReadInputTokens": count.cached,
                "cacheWriteInputTokens": count.written,
                "outputTokens": count.answer,
                "totalTokens": count.prompt + count.answer,
            },
            "metrics": {"latencyMs": 1},
        }
