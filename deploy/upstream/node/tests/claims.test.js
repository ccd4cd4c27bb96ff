// The contract's claims, on a real PostgreSQL; `DATABASE` is its URL.
"use strict";

const assert = require("node:assert");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { test } = require("node:test");
const { Client, Pool } = require("pg");
const { StaleTokenError, postgres } = require("../index.js");
const { Fence } = require("../fence.js");
const { vectors } = require("./exchange.js");

const recipe = (compare) => readFileSync(join(__dirname, "../../postgresql", `${compare}.sql`), "utf8");
const section = (text, name) => text.split(`-- ${name}\n`)[1].split("\n\n")[0].trim();

// A connection to a database with empty tables of the recipe. It is closed at the end of its test.
async function fresh(context, compare) {
  const client = new Client(process.env.DATABASE);
  context.after(() => client.end());
  await client.connect();
  await client.query("DROP SCHEMA IF EXISTS stories CASCADE; CREATE SCHEMA stories; SET search_path = stories");
  await client.query(section(recipe(compare), "table"));
  return client;
}

const fence = (step, compare = "token") => {
  const stamp = { token: step.token ?? null, number: step.number && BigInt(step.number), keys: step.keys, mode: step.mode };
  return new Fence(stamp, { watermarks: postgres, compare });
};

async function passes(client, step, compare) {
  await client.query("BEGIN");
  try {
    await fence(step, compare).claim(client);
    await client.query(step.end ?? "commit");
    return true;
  } catch (error) {
    assert.ok(error instanceof StaleTokenError, error);
    await client.query("ROLLBACK");
    return false;
  }
}

test("claims meet the marks that the contract says", async (context) => {
  assert.ok(vectors.claims.length > 10);
  for (const { name, compare = "token", steps } of vectors.claims) {
    const client = await fresh(context, compare);
    for (const [at, step] of steps.entries()) {
      assert.strictEqual(await passes(client, step, compare), step.passes, `${name}, step ${at + 1}`);
    }
  }
});

const NEWER = { mode: "exclusive", keys: ["a"], token: "v1-0000000000000002-00000000-00000001" };
const OLDER = { ...NEWER, token: "v1-0000000000000001-00000000-00000001" };

test("a handler that goes on after a stale claim changes nothing", async (context) => {
  const client = await fresh(context, "token");
  assert.ok(await passes(client, NEWER));
  await client.query("BEGIN");
  await assert.rejects(fence(OLDER).claim(client), StaleTokenError);
  await assert.rejects(client.query("CREATE TABLE effect ()"), { code: "25P02" });
  assert.strictEqual((await client.query("COMMIT")).command, "ROLLBACK");
});

test("a claim is refused where no transaction has begun", async (context) => {
  const [client, pool] = [await fresh(context, "token"), new Pool({ connectionString: process.env.DATABASE })];
  context.after(() => pool.end());
  await assert.rejects(fence(NEWER).claim(client), TypeError);
  await assert.rejects(fence(NEWER).claim(pool), TypeError);
  assert.strictEqual((await client.query("SELECT FROM fence")).rowCount, 0);
});

test("a transaction that the database has given up is no success", async (context) => {
  const client = await fresh(context, "token");
  const pool = { connect: async () => client };
  client.release = () => {};
  const ignorant = async (transaction) => transaction.query("SELECT 1/0").catch(() => "done");
  await assert.rejects(fence(NEWER).transact(pool, ignorant), /rolled back/);
  assert.strictEqual(await fence(NEWER).transact(pool, async () => "done"), "done");
  await assert.rejects(fence(OLDER).transact(pool, async () => "done"), StaleTokenError);
});

// The statements stand here so that a service can take this folder alone; they are those of the recipe.
test("the statements are those of the recipe", () => {
  for (const [compare, statements] of Object.entries(postgres.statements)) {
    for (const [mode, name] of [["exclusive", "write"], ["shared", "read"]]) {
      const statement = section(recipe(compare), name).replace(/:key\b/g, "$$1").replace(/:(token|number)\b/g, "$$2");
      assert.strictEqual(statements[mode].trim(), statement);
    }
  }
});
