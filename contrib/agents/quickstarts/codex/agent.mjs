// @openai/codex
// https://developers.openai.com/codex/noninteractive, https://developers.openai.com/codex/config-advanced
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const { text } = JSON.parse(readFileSync(0, "utf8"));
const { OPENAI_BASE_URL } = process.env; // Codex reads its own configuration alone
const provider = `{ name = "office", base_url = "${OPENAI_BASE_URL}", env_key = "OPENAI_API_KEY" }`;
const settings = ["-c", `model_providers.office=${provider}`, "-c", "model_provider=office"];
console.log(
  execFileSync("codex", ["exec", "--skip-git-repo-check", "--sandbox", "read-only", ...settings, text], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  }),
);
