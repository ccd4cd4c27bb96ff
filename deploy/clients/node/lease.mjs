// Holds a lock through a gateway with fetch: acquires, calls, renews, loses, is refused, releases.
// FENCEGATE_URL, FENCEGATE_TOKEN, and KEY: `account/7`, where the policy fences `POST /pay/7` by it.

import { setTimeout as sleep } from "node:timers/promises";

const { FENCEGATE_URL, FENCEGATE_TOKEN, KEY } = process.env;
const LEASES = `${FENCEGATE_URL}/.fencegate/v1/leases`;

class Lease {
  async #ask(url, headers, body) {
    // This clock stands still while the machine is suspended. On such a machine read /proc/uptime instead.
    const sent = performance.now();
    const answer = await fetch(url, { method: "POST", headers, body });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    const document = await answer.json();
    // The promised time counts from the moment in which the question was sent.
    this.until = sent + document.held_for_ms;
    return document;
  }

  async acquire(ttl_ms, wait_ms) {
    const headers = { "Authorization": `Bearer ${FENCEGATE_TOKEN}`, "Content-Type": "application/json" };
    const body = JSON.stringify({ keys: [KEY], ttl_ms, wait_ms });
    const document = await this.#ask(LEASES, headers, body);
    this.url = `${LEASES}/${document.reference}`;
    this.shown = { "Fencing-Lease": document.lease };
    console.log("held", document.token);
    return this;
  }

  async renew() {
    await this.#ask(`${this.url}/renew`, this.shown);
    console.log("renewed");
  }

  // Work that does not go through the gateway: no step begins when the promised time is over.
  async outside() {
    let steps = 0;
    for (; steps < 3 && performance.now() < this.until; steps++) await sleep(10);
    console.log("outside", steps);
  }

  // Work that goes through the gateway: the gateway stamps the next token on it, or refuses it.
  async call() {
    const answer = await fetch(`${FENCEGATE_URL}/pay/${KEY.split("/")[1]}`, { method: "POST", headers: this.shown });
    const word = answer.headers.get("Fencing-Token");
    const said = await answer.text();
    console.log("call", answer.status, answer.ok ? word : JSON.parse(said).reason);
  }

  async release() {
    const answer = await fetch(this.url, { method: "DELETE", headers: this.shown });
    if (answer.status === 204) console.log("released");
  }
}

const first = await new Lease().acquire(2000, 0);
await first.outside();
await first.call();
await first.call();
await first.renew();

// Nothing renews the lease from here, as if this process slept. Another client gets the lock when the ttl is over.
const second = await new Lease().acquire(10_000, 8000);
await first.outside();
await first.call();

// The second lease has waited, so its promised time may be over. The answer to a renewal decides.
await second.renew();
await second.call();
await second.release();
