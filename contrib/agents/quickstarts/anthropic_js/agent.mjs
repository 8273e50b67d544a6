// @anthropic-ai/sdk
// https://docs.claude.com/en/docs/build-with-claude/streaming
import Anthropic from "@anthropic-ai/sdk";
import { readFileSync } from "node:fs";

const row = JSON.parse(readFileSync(0, "utf8"));
const stream = new Anthropic().messages.stream({
  model: "claude-sonnet-4-5",
  max_tokens: 1000,
  system: `You sort the post of an office.
Name the kind of the text: a, b, c or d.`,
  messages: [{ role: "user", content: "Which kind is this text? " + row.text }],
});
const answer = await stream.finalMessage();
console.log(answer.content[0].text);
