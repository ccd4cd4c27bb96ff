// Every way in which Node begins an answer, and the settings.
"use strict";

const assert = require("node:assert");
const { test } = require("node:test");
const { Readable } = require("node:stream");
const fencegate = require("../index.js");
const { fencing, StaleTokenError } = fencegate;
const { STAMPED, assertAnswer, exchange, scripted } = require("./exchange.js");

const quiet = { log: () => {} };

test("no way to begin an answer goes around the fence", async () => {
  for (const begin of [
    (response) => response.end("done"),
    (response) => response.end(),
    (response) => response.writeHead(200).end("done"),
    (response) => response.writeHead(201, "Created", { "X-Own": "1" }).end(),
    (response) => new Promise((resolve) => response.write("done", () => response.end(resolve))),
    (response) => (response.flushHeaders(), response.end("done")),
    (response) => Readable.from(["a", "b"]).pipe(response),
  ]) {
    const fenced = fencing({ watermarks: scripted([]), ...quiet });
    const answer = await exchange(fenced.http((_request, response) => void begin(response)), STAMPED);
    assertAnswer(answer, "unclaimed", String(begin));
    const claimed = fencing({ watermarks: scripted(["passes"]) });
    const given = await exchange(
      claimed.http(async (_request, response, fence) => {
        await fence.claim();
        begin(response);
      }),
      STAMPED,
    );
    assert.ok([200, 201].includes(given.status), String(begin));
  }
});

test("a handler that waits for its discarded bytes goes on to its end", async () => {
  let ended = false;
  const fenced = fencing({ watermarks: scripted([]), ...quiet });
  const listener = fenced.http(async (_request, response) => {
    await new Promise((resolve) => response.write("a", resolve));
    await new Promise((resolve) => response.end("b", resolve));
    ended = true;
  });
  assertAnswer(await exchange(listener, STAMPED), "unclaimed");
  assert.ok(ended);
});

test("a handler's own refusal passes as it is", async () => {
  for (const refuse of [
    (response) => (response.setHeader("Fencing-Refusal", "stale"), response.writeHead(412)),
    (response) => response.writeHead(412, { "fencing-refusal": "stale" }),
    (response) => response.writeHead(412, "Precondition Failed", ["Fencing-Refusal", "stale"]),
  ]) {
    const fenced = fencing({ watermarks: scripted(["stale"]) });
    const listener = fenced.http(async (_request, response, fence) => {
      await fence.claim().catch(() => {});
      refuse(response).end("its own words");
    });
    const answer = await exchange(listener, STAMPED);
    assert.ok(answer.status === 412 && answer.body.includes("its own words"), `${refuse}: ${answer.body}`);
  }
});

test("an answer that has begun is broken off when its handler fails", async () => {
  const fenced = fencing({ watermarks: scripted(["passes"]), ...quiet });
  const listener = fenced.http(async (_request, response, fence) => {
    await fence.claim();
    response.writeHead(200, { "Content-Length": "4" }).write("ab");
    throw new Error("in the middle");
  });
  const answer = await exchange(listener, STAMPED).catch((error) => error);
  assert.ok(answer instanceof Error || answer.body !== "abcd", answer.body);
});

test("an unfenced method passes without any field", async () => {
  const fenced = fencing({ watermarks: scripted([]), unfenced: ["GET", "HEAD"], ...quiet });
  const listener = fenced.http((_request, response, fence) => response.writeHead(fence ? 200 : 418).end());
  assert.strictEqual((await exchange(listener, [], "GET")).status, 418);
  assert.strictEqual((await exchange(listener, [], "HEAD")).status, 418);
  assertAnswer(await exchange(listener, []), "token-missing");
  assertAnswer(await exchange(listener, [["Fencing_Key", "a"]], "GET"), "token-missing");
  assertAnswer(await exchange(listener, STAMPED, "GET"), "unclaimed");
  const head = await exchange(listener, STAMPED, "HEAD");
  assert.deepStrictEqual([head.status, head.body], [500, ""]);
});

test("fields have other names where the policy says so", async () => {
  const fields = { token: "X-Token", number: "X-Number" };
  const renamed = () =>
    fencing({ watermarks: scripted(["passes"]), fields }).http(async (_request, response, fence) => {
      await fence.claim();
      response.end();
    });
  const sent = [["x-token", STAMPED[0][1]], ["x-number", "171"], STAMPED[1], STAMPED[2]];
  assert.strictEqual((await exchange(renamed(), sent)).status, 200);
  assertAnswer(await exchange(renamed(), [...sent, ["x_token", "1"]]), "token-malformed");
  assertAnswer(await exchange(renamed(), STAMPED), "token-missing");
  assert.throws(() => fencing({ watermarks: {}, fields: { token: "fencing_key" } }), /one name/);
});

test("the former names work for one version, and warn", async () => {
  const warned = [];
  const listen = (warning) => warned.push(`${warning.name} ${warning.code}`);
  process.on("warning", listen);
  assert.strictEqual(fencegate.Stale, StaleTokenError);
  let met;
  const listener = fencing({ marks: scripted(["stale"]) }).http(async (_request, response, fence) => {
    await fence.claim().catch((error) => (met = error));
    response.writeHead(409).end();
  });
  assertAnswer(await exchange(listener, STAMPED), "stale");
  assert.ok(met instanceof fencegate.Stale && met.name === "StaleTokenError", met);
  process.off("warning", listen);
  assert.deepStrictEqual(warned, ["DeprecationWarning FENCING001", "DeprecationWarning FENCING002"]);
});
