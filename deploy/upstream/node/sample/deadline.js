// A service that refuses what comes too late to be begun, and compares nothing. Each execution is a line in a file.
//
//     node deadline.js --file executed.txt [--listen 0] [--off]
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const { setTimeout: sleep } = require("node:timers/promises");
const { parseArgs } = require("node:util");
const { deadline } = require("../index.js");

const { values } = parseArgs({
  options: { file: { type: "string" }, listen: { type: "string", default: "0" }, off: { type: "boolean" } },
});

async function execute(request, response) {
  const { pathname, searchParams } = new URL(request.url, "http://service");
  fs.appendFileSync(values.file, `${pathname}\n`);
  await sleep(Number(searchParams.get("work_ms") ?? 0));
  response.end("done\n");
}

function service() {
  const inTime = deadline({ unfenced: ["GET"] });
  return http.createServer(inTime.http(execute));
}

const server = values.off ? http.createServer(execute) : service();
server.listen(Number(values.listen), "127.0.0.1", () => {
  // The parent process reads this line to learn the port.
  console.log(JSON.stringify({ listening: `127.0.0.1:${server.address().port}` }));
});
