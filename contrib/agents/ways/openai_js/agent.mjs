// openai
import OpenAI from "openai";
import { readFileSync } from "node:fs";

const letter = readFileSync(0, "utf8");
const answer = await new OpenAI().chat.completions.create({
  model: "gpt-4o-mini",
  messages: [
    { role: "system", content: "You sort the letters of a shop. Answer with the desk alone." },
    { role: "user", content: `Letter: ${letter}` },
  ],
});
console.log(answer.choices[0].message.content);
