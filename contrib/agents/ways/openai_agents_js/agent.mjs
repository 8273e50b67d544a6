// @openai/agents, zod
import { Agent, run, tool } from "@openai/agents";
import { createInterface } from "node:readline/promises";
import { z } from "zod";

const lookUpOrder = tool({
  name: "look_up_order",
  description: "Find an order by its number.",
  parameters: z.object({ number: z.string().describe("As the letter has it.") }),
  execute: async ({ number }) => `order ${number}: sent`,
});
const clerk = new Agent({
  name: "Clerk",
  model: "gpt-4o-mini",
  instructions: "You sort the letters of a shop. Look an order up if one is named, then answer with the desk alone.",
  tools: [lookUpOrder],
});
const lines = createInterface({ input: process.stdin });
const letter = await lines.question("");
lines.close();
console.log((await run(clerk, letter)).finalOutput);
