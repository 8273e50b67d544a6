#!/bin/bash
set -euo pipefail
letter=$(cat)
body=$(jq -n --arg letter "$letter" '{model: "gpt-4o-mini", messages: [
  {role: "system", content: "You sort the letters of a shop. One word."}, {role: "user", content: $letter}]}')
curl -sS "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" \
  -H "Content-Type: application/json" -d "$body" | jq -r '.choices[0].message.content'
