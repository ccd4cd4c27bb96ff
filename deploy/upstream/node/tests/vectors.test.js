// The contract's requests and handlers, with plain http and with Express.
"use strict";

const assert = require("node:assert");
const { test } = require("node:test");
const express = require("express");
const { fencing } = require("../index.js");
const { STAMPED, assertAnswer, exchange, scripted, vectors } = require("./exchange.js");

// Each way to put the middleware around an asynchronous handler.
const FACES = {
  http: (fenced, handler) => fenced.http(handler),
  express: (fenced, handler) => {
    const app = express();
    // In production Express leaves the stack out of its answer to an error.
    app.set("env", "test");
    app.all("/pay", fenced.express, (request, response) => handler(request, response, request.fence));
    app.use((error, request, response, next) => (response.headersSent ? next(error) : response.status(500).send("failed")));
    return app;
  },
};

for (const [name, face] of Object.entries(FACES)) {
  test(`${name}: requests are read as the contract says`, async () => {
    assert.ok(vectors.requests.length > 100);
    for (const { name: which, compare, fields, accepted, refused } of vectors.requests) {
      let read;
      const watermarks = { raise: async () => true };
      const listener = face(fencing({ watermarks, compare }), async (request, response, fence) => {
        const { token, number, keys, mode } = fence;
        read = { token, number: String(number), keys, mode };
        await fence.claim();
        response.end();
      });
      const answer = await exchange(listener, fields);
      if (refused) assertAnswer(answer, refused, which);
      else assert.strictEqual(answer.status, 200, `${which}: ${answer.body}`);
      assert.deepStrictEqual(read, accepted, which);
    }
  });

  test(`${name}: answers are held back as the contract says`, async () => {
    assert.ok(vectors.handlers.length > 10);
    for (const { name: which, claims, status, sent } of vectors.handlers) {
      const told = [];
      const fenced = fencing({ watermarks: scripted([...claims]), log: (line) => told.push(line) });
      const listener = face(fenced, async (request, response, fence) => {
        let failed = new Error("without a reason");
        for (const _ of claims) await fence.claim().catch((error) => (failed = error));
        if (status === 0) throw failed;
        response.statusCode = status;
        response.setHeader("X-Own", "1");
        response.end(status === 204 ? undefined : "the handler's");
      });
      const answer = await exchange(listener, STAMPED);
      if (typeof sent === "number") {
        assert.deepStrictEqual([answer.status, answer.fields.get("x-own")], [sent, "1"], which);
      } else {
        assertAnswer(answer, sent, which);
        assert.strictEqual(answer.fields.get("x-own"), undefined, which);
      }
      const words = `POST /pay ${STAMPED[0][1]}: answered ${status} without a claim: it may have taken effect`;
      assert.strictEqual(told.some((line) => line.includes(words)), sent === "unclaimed", `${which}: ${told}`);
    }
  });
}
