// @langchain/openai, @langchain/core
import { ChatPromptTemplate } from "@langchain/core/prompts";
import { ChatOpenAI } from "@langchain/openai";
import { parseArgs } from "node:util";

const { values } = parseArgs({ options: { text: { type: "string" }, verbose: { type: "boolean" } } });
const prompt = ChatPromptTemplate.fromMessages([
  ["system", "You sort the letters of a shop. Desks: billing, technical, shipping, returns."],
  ["human", "Sort this: {text}"],
]);
const answer = await prompt.pipe(new ChatOpenAI({ model: "gpt-4o-mini" })).invoke({ text: values.text });
console.log(answer.content);
