// opencode-ai
// https://opencode.ai/docs/cli
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const { text } = JSON.parse(readFileSync(0, "utf8"));
console.log(
  execFileSync("opencode", ["run", "--agent", "sorter", text], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  }),
);
