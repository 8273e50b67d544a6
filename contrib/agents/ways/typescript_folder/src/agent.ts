// openai, tsx
// init: -- npx tsx src/agent.ts
import OpenAI from "openai";
import { SYSTEM } from "./prompt.js";

async function main(letter: string): Promise<void> {
  const stream = await new OpenAI().responses.create({
    model: "gpt-4o-mini",
    instructions: SYSTEM,
    input: letter,
    stream: true,
  });
  let answer = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") answer += event.delta;
  console.log(`desk=${answer}`);
}

main(process.argv[2] ?? "");
