// Watermarks in PostgreSQL, in the tables of the recipe, by a client of the package `pg`.
"use strict";

// Each changes one row, or the request is stale. A row that is new is made and compared in the same statement. Nothing is
// let in that is not above the floor, below which rows may be deleted.
const STATEMENTS = {
  token: {
    exclusive: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), CAST($2 AS text), '' FROM fence_floor WHERE CAST($2 AS text) > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark > fence.write_mark AND excluded.write_mark > fence.read_mark;`,
    shared: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), '', CAST($2 AS text) FROM fence_floor WHERE CAST($2 AS text) > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark > fence.write_mark;`,
  },
  number: {
    exclusive: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), CAST($2 AS bigint), -1 FROM fence_floor WHERE CAST($2 AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET write_mark = excluded.write_mark
    WHERE excluded.write_mark >= fence.write_mark AND excluded.write_mark >= fence.read_mark;`,
    shared: `
INSERT INTO fence (resource, write_mark, read_mark)
    SELECT CAST($1 AS text), -1, CAST($2 AS bigint) FROM fence_floor WHERE CAST($2 AS bigint) > floor
    ON CONFLICT (resource) DO UPDATE SET read_mark = greatest(fence.read_mark, excluded.read_mark)
    WHERE excluded.read_mark >= fence.write_mark;`,
  },
};

// After a failed statement a transaction can only be rolled back. A handler that goes on meets this.
const END = "DO $$BEGIN RAISE EXCEPTION 'fencing: a newer request was let in'; END$$";

const postgres = {
  statements: STATEMENTS,

  async raise(client, key, stamp, compare) {
    assertTransaction(client);
    const mark = compare === "token" ? stamp.token : String(stamp.number);
    const { rowCount } = await client.query(STATEMENTS[compare][stamp.mode], [key, mark]);
    if (rowCount === 1) return true;
    await client.query(END).catch(() => {});
    return false;
  },

  async transact(pool, work) {
    const client = await pool.connect();
    let broken;
    try {
      await client.query("BEGIN");
      const result = await work(client);
      const { command } = await client.query("COMMIT");
      // After an ignored failure of a statement PostgreSQL answers ROLLBACK to a COMMIT, and no error.
      if (command !== "COMMIT") throw new Error("fencing: the transaction was rolled back: one of its statements has failed");
      return result;
    } catch (error) {
      // A client that cannot even roll back is closed, and does not go back to the pool.
      await client.query("ROLLBACK").catch((worse) => (broken = worse));
      throw error;
    } finally {
      client.release(broken);
    }
  },
};

// Outside of a transaction the watermarks would be raised without the effect.
function assertTransaction(client) {
  const status = client.getTransactionStatus?.();
  // A pool would use another client for each statement; an older `pg` does not report the state of the transaction.
  if (client.totalCount !== undefined || (status !== undefined && status !== "T")) {
    throw new TypeError("fencing: claim() wants the client on which BEGIN was sent and answered");
  }
}

module.exports = { postgres };
