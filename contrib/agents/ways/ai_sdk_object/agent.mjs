// ai@6, @ai-sdk/openai@3, zod
import { openai } from "@ai-sdk/openai";
import { generateObject } from "ai";
import { readFile } from "node:fs/promises";
import { z } from "zod";

let input = "";
for await (const chunk of process.stdin) input += chunk;
const { text } = JSON.parse(input);
const { object } = await generateObject({
  model: openai("gpt-4o-mini"),
  system: await readFile("system.txt", "utf8"),
  prompt: text,
  schema: z.object({
    desk: z.enum(["billing", "technical", "shipping", "returns"]).describe("The desk that answers."),
  }),
});
console.log(object.desk);
