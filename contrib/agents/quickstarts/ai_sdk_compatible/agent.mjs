// ai@6, @ai-sdk/openai-compatible@2
// https://ai-sdk.dev/providers/openai-compatible-providers
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { streamText } from "ai";
import { readFileSync } from "node:fs";

const provider = createOpenAICompatible({
  name: "office",
  apiKey: process.env.OPENAI_API_KEY,
  baseURL: process.env.OPENAI_BASE_URL,
});
const { textStream } = streamText({
  model: provider("gpt-4o-mini"),
  system: `You sort the post of an office.
Name the kind of the text: a, b, c or d.`,
  prompt: `Which kind is this text? ${JSON.parse(readFileSync(0, "utf8")).text}`,
});
let answer = "";
for await (const part of textStream) answer += part;
console.log(answer);
