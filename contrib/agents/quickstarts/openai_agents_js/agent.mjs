// @openai/agents, zod
// https://openai.github.io/openai-agents-js/guides/quickstart/
import { Agent, run, tool } from "@openai/agents";
import { readFileSync } from "node:fs";
import { z } from "zod";

const lookUp = tool({
  name: "look_up",
  description: "Look up words in the list of the office.",
  parameters: z.object({ words: z.string().describe("What to look up in the list.") }),
  execute: async ({ words }) => `found: ${words}`,
});
const agent = new Agent({
  name: "Sorter",
  model: "gpt-4o-mini",
  instructions: ["You sort the post of an office.", "Name the kind of the text: a, b, c or d."].join("\n"),
  tools: [lookUp],
});
console.log((await run(agent, JSON.parse(readFileSync(0, "utf8")).text)).finalOutput);
