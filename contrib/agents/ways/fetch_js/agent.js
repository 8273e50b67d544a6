//
const { text, customer } = JSON.parse(require("fs").readFileSync("/dev/stdin", "utf8"));

async function main() {
  const response = await fetch(`${process.env.AI_GATEWAY_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${process.env.AI_GATEWAY_KEY}` },
    body: JSON.stringify({
      model: "mistral-small",
      messages: [
        { role: "system", content: `You sort letters. This one is from ${customer}. Answer with a desk.` },
        { role: "user", content: text },
      ],
    }),
  });
  const body = await response.json();
  console.log(body.choices[0].message.content);
}

main();
