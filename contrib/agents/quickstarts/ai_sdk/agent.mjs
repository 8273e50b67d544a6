// ai@6, @ai-sdk/openai@3, zod
// https://ai-sdk.dev/docs/ai-sdk-core/tools-and-tool-calling
import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import { readFileSync } from "node:fs";
import { z } from "zod";

const { text } = await generateText({
  model: openai("gpt-4o-mini"),
  system: "You sort the post of an office. Name the kind of the text: a, b, c or d.",
  prompt: JSON.parse(readFileSync(0, "utf8")).text,
  stopWhen: stepCountIs(5),
  tools: {
    lookUp: tool({
      description: "Look up words in the list of the office.",
      inputSchema: z.object({ words: z.string().describe("What to look up in the list.") }),
      execute: async ({ words }) => `found: ${words}`,
    }),
  },
});
console.log(text);
