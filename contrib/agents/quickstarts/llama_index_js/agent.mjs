// llamaindex, @llamaindex/openai, @llamaindex/workflow, zod
// https://developers.llamaindex.ai/typescript/framework/tutorials/agents/1_setup/
import { openai } from "@llamaindex/openai";
import { agent } from "@llamaindex/workflow";
import { tool } from "llamaindex";
import { readFileSync } from "node:fs";
import { z } from "zod";

const lookUp = tool({
  name: "look_up",
  description: "Look up words in the list of the office.",
  parameters: z.object({ words: z.string().describe("What to look up in the list.") }),
  execute: ({ words }) => `found: ${words}`,
});
const sorter = agent({
  llm: openai({ model: "gpt-4o-mini" }),
  tools: [lookUp],
  systemPrompt: "You sort the post of an office. Name the kind of the text: a, b, c or d.",
});
console.log((await sorter.run(JSON.parse(readFileSync(0, "utf8")).text)).data.result);
