// @langchain/langgraph, @langchain/openai, @langchain/core
// https://docs.langchain.com/oss/javascript/langgraph/quickstart
import { HumanMessage, SystemMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { MessagesAnnotation, StateGraph } from "@langchain/langgraph";
import { ToolNode, toolsCondition } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { readFileSync } from "node:fs";

const lookUp = tool(async ({ words }) => `found: ${words}`, {
  name: "look_up",
  description: "Look up words in the list of the office.",
  schema: {
    type: "object",
    properties: { words: { type: "string", description: "What to look up in the list." } },
    required: ["words"],
  },
});
const model = new ChatOpenAI({ model: "gpt-4o-mini" }).bindTools([lookUp]);
const prompt = new SystemMessage("You sort the post of an office. Name the kind of the text: a, b, c or d.");
const graph = new StateGraph(MessagesAnnotation)
  .addNode("model", async ({ messages }) => ({ messages: [await model.invoke([prompt, ...messages])] }))
  .addNode("tools", new ToolNode([lookUp]))
  .addEdge("__start__", "model")
  .addConditionalEdges("model", toolsCondition)
  .addEdge("tools", "model")
  .compile();
const { text } = JSON.parse(readFileSync(0, "utf8"));
const said = `Which kind is this text? ${text}`;
console.log((await graph.invoke({ messages: [new HumanMessage(said)] })).messages.at(-1).content);
