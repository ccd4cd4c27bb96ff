// The accounts and their operations.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");

// The initial balance of an account, in cents.
const INITIAL = 1_000_000n;

class NotEnough extends Error {}
class OtherAccount extends Error {}

class Accounts {
  constructor(pool) {
    this.pool = pool;
  }

  // Takes an amount from an account, or adds it with the sign 1n. The claim is the first statement of the transaction.
  // `to`: another account, which receives the amount, or pays it. `workTime` makes the business logic slow, for tests.
  async move(sign, fence, id, { amount, to }, workTime) {
    const change = sign * BigInt(amount);
    assertCovers(fence, id);
    if (to) assertCovers(fence, to);
    return fence.transact(this.pool, async (transaction) => {
      const balance = (await read(transaction, id)) + change;
      await sleep(Number(workTime ?? 0));
      if (balance < 0n) throw new NotEnough();
      await write(transaction, id, balance);
      if (to) await write(transaction, to, (await read(transaction, to)) - change);
      return balance;
    });
  }

  // A read without a fence is not compared.
  async balance(fence, id) {
    if (!fence) return read(this.pool, id);
    assertCovers(fence, id);
    return fence.transact(this.pool, (transaction) => read(transaction, id));
  }
}

// Checks that the gateway has locked this account for the request.
function assertCovers(fence, id) {
  if (!fence.keys.includes(`account/${id}`)) throw new OtherAccount();
}

async function read(from, id) {
  const { rows } = await from.query("SELECT balance FROM accounts WHERE id = $1", [id]);
  return rows.length > 0 ? BigInt(rows[0].balance) : INITIAL;
}

async function write(transaction, id, balance) {
  await transaction.query(
    `INSERT INTO accounts (id, balance) VALUES ($1, $2)
     ON CONFLICT (id) DO UPDATE SET balance = excluded.balance`,
    [id, String(balance)],
  );
}

module.exports = { Accounts, NotEnough, OtherAccount };
