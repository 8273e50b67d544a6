// @anthropic-ai/sdk
import Anthropic from "@anthropic-ai/sdk";

const [letter] = process.argv.slice(2);
if (!letter) throw new Error("usage: node agent.mjs LETTER");
const message = await new Anthropic().messages.create({
  model: "claude-haiku-4-5",
  max_tokens: 64,
  system: "You sort the letters of a shop. One of: billing, technical, shipping, returns.",
  messages: [{ role: "user", content: letter }],
});
console.log(JSON.stringify({ desk: message.content[0].text, usage: message.usage.output_tokens }));
