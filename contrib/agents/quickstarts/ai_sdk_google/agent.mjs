// ai@6, @ai-sdk/google@3, zod
// https://ai-sdk.dev/providers/ai-sdk-providers/google-generative-ai
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { generateText, stepCountIs, tool } from "ai";
import { readFileSync } from "node:fs";
import { z } from "zod";

const { GEMINI_API_KEY, GOOGLE_GEMINI_BASE_URL } = process.env; // no variable of its own leads it elsewhere
const google = createGoogleGenerativeAI({ apiKey: GEMINI_API_KEY, baseURL: `${GOOGLE_GEMINI_BASE_URL}/v1beta` });
const { text } = await generateText({
  model: google("gemini-2.5-flash"),
  system: "You sort the post of an office. Name the kind of the text: a, b, c or d.",
  prompt: JSON.parse(readFileSync(0, "utf8")).text,
  stopWhen: stepCountIs(5),
  tools: {
    lookUp: tool({
      description: "Look up words in the list of the office.",
      inputSchema: z.object({ words: z.string().describe("What to look up in the list.") }),
      execute: async ({ words }) => `found: ${words}`,
    }),
  },
});
console.log(text);
