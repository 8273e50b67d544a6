// What OpenAI's client for JavaScript reads from a gateway; one JSON object on standard output. The package lies beside
// this file, or where OPENAI_PACKAGE says.
import { pathToFileURL } from "node:url";

const { default: OpenAI } = await import(pathToFileURL(process.env.OPENAI_PACKAGE));
const client = new OpenAI({ maxRetries: 2 });
const messages = [{ role: "user", content: "hi" }];
const found = {};

const whole = await client.chat.completions.create({ model: "m", messages });
found.whole = [whole.choices[0].message.content, whole.usage.total_tokens];

const stream = await client.chat.completions.create({
  model: "m", messages, stream: true, stream_options: { include_usage: true },
});
found.streamed = ["", 0];
for await (const chunk of stream) {
  found.streamed[0] += chunk.choices[0]?.delta?.content ?? "";
  found.streamed[1] += chunk.usage?.total_tokens ?? 0;
}

const tools = [{ type: "function", function: { name: "add", parameters: { type: "object", properties: {} } } }];
const called = await client.chat.completions.create({ model: "tools", messages, tools });
found.calls = called.choices[0].message.tool_calls.map((c) => [c.id, c.function.name, JSON.parse(c.function.arguments)]);

const response = await client.responses.create({ model: "m", input: "hi" });
const next = await client.responses.create({ model: "m", input: "on", previous_response_id: response.id });
found.response = [response.output_text, next.previous_response_id === response.id];
found.events = [];
for await (const event of await client.responses.create({ model: "m", input: "hi", stream: true })) {
  found.events.push(event.type);
}

found.vectors = (await client.embeddings.create({ model: "e", input: ["a", "bcd"] })).data.map((row) => row.embedding);
found.models = [];
for await (const model of client.models.list()) found.models.push(model.id);

const again = await client.chat.completions.create({ model: "busy", messages });
found.again = again.choices[0].message.content;
for (const model of ["spent", "wrong"]) {
  try {
    await client.chat.completions.create({ model, messages });
  } catch (error) {
    found[model] = [error.constructor.name, error.status, error.code];
  }
}
console.log(JSON.stringify(found));
