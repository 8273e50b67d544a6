// The quickstart of OpenAI's client for JavaScript, as a program that labels a text.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const row = JSON.parse(readFileSync(0, "utf8"));
const client = new OpenAI();
const response = await client.responses.create({
  model: "gpt-4o-mini",
  instructions: "You sort the post of an office. Name the kind of the text: a, b, c or d.",
  input: row.text,
});
console.log(response.output_text);
