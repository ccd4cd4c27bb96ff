// A virtual object of Restate whose one handler is exclusive. What it does elsewhere stands in `ctx.run`, which journals
// that it was done: https://docs.restate.dev/foundations/handlers and https://docs.restate.dev/develop/ts/durable-steps
//
//   node account.mjs PORT SERVICE NAME    says `UP` when it listens
//
// The service tells how many milliseconds it shall stand still before it calls the next time. It says HELD when it does.

import http from "node:http";
import http2 from "node:http2";
import { setTimeout } from "node:timers/promises";

// Node has it from version 22 on; Debian's and others' are older.
Promise.withResolvers ??= function () {
    let resolve, reject;
    const promise = new this((yes, no) => ([resolve, reject] = [yes, no]));
    return { promise, resolve, reject };
};

const restate = await import("@restatedev/restate-sdk");
const [port, service, name] = process.argv.slice(2);
const agent = new http.Agent({ keepAlive: true });
let stand = 0;

function call(since) {
    return new Promise((resolve, reject) => {
        const headers = { holder: name, "held-since": since.toString(), "content-length": 0 };
        const request = http.request(service, { method: "POST", agent, headers }, (answer) => {
            let told = "";
            answer.setEncoding("utf8");
            answer.on("data", (piece) => (told += piece));
            answer.on("error", reject);
            answer.on("end", () => (answer.statusCode === 200 ? resolve(told) : reject(new Error(answer.statusCode))));
        });
        request.on("error", reject);
        request.end();
    });
}

async function pay() {
    const since = process.hrtime.bigint();
    const still = stand;
    stand = 0;
    if (still > 0) {
        console.log("HELD");
        await setTimeout(still);
    }
    stand = Number(await call(since));
    return "ok";
}

const account = restate.object({
    name: "account",
    handlers: { pay: async (ctx) => ctx.run("pay", pay) },
});

const server = http2.createServer(restate.createEndpointHandler({ services: [account] }));
server.listen(Number(port), "127.0.0.1", () => console.log("UP"));
