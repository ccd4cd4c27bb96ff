// A handler claims this, in the transaction that makes its change.
"use strict";

const { refused } = require("./problem.js");

// A newer request was let in for one of the keys. Roll back; nothing may be done for this request any more.
class StaleTokenError extends Error {
  constructor() {
    super("fencing: a newer request was let in");
    this.name = "StaleTokenError";
  }
}

class Fence {
  #settings;
  #passed = false;
  #stale = false;

  // token     text; null if only the number was sent
  // number    a BigInt
  // keys      ascending, none twice
  // mode      "exclusive" or "shared"
  constructor(stamp, settings) {
    Object.assign(this, stamp);
    this.#settings = settings;
  }

  // Compares and raises the watermark of every key, all or none. Call it once, as the first statement of the transaction
  // that has the effect.
  //
  // Throws StaleTokenError, or the error of the database. After a rollback, a claim in a new transaction may be tried.
  async claim(transaction) {
    const { watermarks, compare } = this.#settings;
    for (const key of this.keys) {
      if (!(await watermarks.raise(transaction, key, this, compare))) {
        this.#stale = true;
        throw new StaleTokenError();
      }
    }
    this.#passed = true;
  }

  // Runs `work(transaction)` in a transaction that begins with the claim, and commits it.
  async transact(pool, work) {
    return this.#settings.watermarks.transact(pool, async (transaction) => {
      await this.claim(transaction);
      return work(transaction);
    });
  }

  // The problem that replaces an answer with this status; undefined where the answer may be given. `ownRefusal`: it
  // says by itself that the request was stale.
  objection(status, ownRefusal) {
    const success = status < 400;
    // It is not known which of the two transactions was committed.
    if (this.#passed && this.#stale) return refused("claimed-twice");
    if (success && !this.#passed) return refused("unclaimed");
    if (!this.#stale || (status === 412 && ownRefusal)) return undefined;
    return refused("stale");
  }
}

module.exports = { Fence, StaleTokenError };
