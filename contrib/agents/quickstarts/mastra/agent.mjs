// @mastra/core@0, @ai-sdk/openai@2, zod
// https://mastra.ai/docs/agents/overview
import { openai } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { readFileSync } from "node:fs";
import { z } from "zod";

const lookUp = createTool({
  id: "look_up",
  description: "Look up words in the list of the office.",
  inputSchema: z.object({ words: z.string().describe("What to look up in the list.") }),
  execute: async () => ({ found: "yes" }),
});
const agent = new Agent({
  name: "sorter",
  instructions: "You sort the post of an office. Name the kind of the text: a, b, c or d.",
  model: openai("gpt-4o-mini"),
  tools: { lookUp },
});
console.log((await agent.generate(JSON.parse(readFileSync(0, "utf8")).text)).text);
