// Sends a request exactly as it stands there, each character one byte, and reads the answer.
"use strict";

const assert = require("node:assert");
const http = require("node:http");
const net = require("node:net");
const { once } = require("node:events");
const vectors = require("../../vectors.json");

const STAMPED = [
  ["Fencing-Token", "v1-00000000000000ab-00000007-00000001"],
  ["Fencing-Key", "a"],
  ["Fencing-Mode", "exclusive"],
];

// `listener`: the request listener of a server, such as an Express app.
async function exchange(listener, fields, method = "POST") {
  const server = http.createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const line = net.connect(server.address().port, "127.0.0.1");
    const head = [`${method} /pay?secret=1 HTTP/1.1`, "Host: a", "Connection: close"];
    for (const [name, value] of fields) head.push(`${name}: ${value}`);
    line.write(Buffer.from(`${head.join("\r\n")}\r\n\r\n`, "latin1"));
    const pieces = [];
    for await (const piece of line) pieces.push(piece);
    return parsed(Buffer.concat(pieces).toString("latin1"));
  } finally {
    server.close();
  }
}

function parsed(text) {
  const end = text.indexOf("\r\n\r\n");
  const [first, ...lines] = text.slice(0, end).split("\r\n");
  const fields = new Map(lines.map((line) => [line.split(": ")[0].toLowerCase(), line.slice(line.indexOf(": ") + 2)]));
  return { status: Number(first.split(" ")[1]), fields, body: text.slice(end + 4) };
}

// Checks for exactly the middleware's answer with this reason.
function assertAnswer(answer, reason, which) {
  const { status, title, refusal } = vectors.answers.find((one) => one.reason === reason);
  assert.strictEqual(answer.status, status, `${which}: ${answer.body}`);
  assert.deepStrictEqual(JSON.parse(answer.body), { title, status, reason }, which);
  assert.strictEqual(answer.fields.get("content-type"), "application/problem+json", which);
  assert.strictEqual(answer.fields.get("fencing-refusal"), refusal, which);
}

// Watermarks with the results that a vector gives.
const scripted = (meets) => ({
  async raise() {
    const met = meets.shift();
    if (met === "error") throw new Error("the database failed");
    return met === "passes";
  },
});

module.exports = { STAMPED, assertAnswer, exchange, scripted, vectors };
