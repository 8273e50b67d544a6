// langchain, @langchain/openai, @langchain/core, zod
// https://js.langchain.com/docs/concepts/prompt_templates/
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { ChatOpenAI } from "@langchain/openai";
import { readFileSync } from "node:fs";

const prompt = ChatPromptTemplate.fromMessages([
  ["system", "You sort the post of an office. Name the kind of the text: a, b, c or d."],
  ["user", "Which kind is this text? {text}"],
]);
const chain = prompt.pipe(new ChatOpenAI({ model: "gpt-4o-mini" }));
console.log((await chain.invoke({ text: JSON.parse(readFileSync(0, "utf8")).text })).content);
