// @anthropic-ai/claude-code
// https://docs.claude.com/en/docs/claude-code/headless
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const { text } = JSON.parse(readFileSync(0, "utf8"));
const rules = "You sort the post of an office. Answer with one letter and nothing else.";
console.log(
  execFileSync("claude", ["-p", text, "--append-system-prompt", rules, "--disallowedTools", "Bash"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  }),
);
