// A virtual object of Restate whose one handler is exclusive: one call at a time for each key, and each call at most once
// for its `idempotency-key`. What it does is one POST to the service.
//
//   node account.mjs PORT SERVICE    says `UP` when it listens
//
// As https://docs.restate.dev/foundations/handlers has it: what has an effect elsewhere stands in `ctx.run`, which
// journals that it was done. Served over HTTP/2, as `restate.serve` does it, but on loopback alone.

import http from "node:http";
import http2 from "node:http2";

// Node has it from version 22 on; Debian's and others' are older.
Promise.withResolvers ??= function () {
    let resolve, reject;
    const promise = new this((yes, no) => ([resolve, reject] = [yes, no]));
    return { promise, resolve, reject };
};

const restate = await import("@restatedev/restate-sdk");
const [port, service] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true });

function pay(key) {
    return new Promise((resolve, reject) => {
        const body = '{"amount": 1}';
        const headers = { "content-type": "application/json", "content-length": body.length };
        const request = http.request(`${service}/once/${key}`, { method: "POST", agent, headers }, (answer) => {
            answer.resume();
            answer.on("error", reject);
            answer.on("end", () => (answer.statusCode === 200 ? resolve("ok") : reject(new Error(answer.statusCode))));
        });
        request.on("error", reject);
        request.end(body);
    });
}

const account = restate.object({
    name: "account",
    handlers: { pay: async (ctx) => ctx.run("pay", () => pay(ctx.key)) },
});

const server = http2.createServer(restate.createEndpointHandler({ services: [account] }));
server.listen(Number(port), "127.0.0.1", () => console.log("UP"));
