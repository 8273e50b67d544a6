// @google/gemini-cli
// https://geminicli.com/docs/cli/headless, https://geminicli.com/docs/cli/trusted-folders
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const { text } = JSON.parse(readFileSync(0, "utf8"));
console.log(
  execFileSync("gemini", ["-p", text], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, GEMINI_CLI_TRUST_WORKSPACE: "true" }, // so that it reads .gemini/settings.json
  }),
);
