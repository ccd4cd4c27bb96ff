// A service that keeps accounts in PostgreSQL, and refuses requests that were overtaken.
//
//     node service.js --database postgres://... [--listen 0] [--face express|http] [--compare token|number]
"use strict";

const http = require("node:http");
const { parseArgs } = require("node:util");
const { Pool } = require("pg");
const { fencing, postgres } = require("../index.js");
const { Accounts } = require("./accounts.js");
const faces = require("./faces.js");

async function main() {
  const { values } = parseArgs({
    options: {
      database: { type: "string" },
      listen: { type: "string", default: "0" },
      face: { type: "string", default: "express" },
      compare: { type: "string", default: "token" },
    },
  });
  const pool = new Pool({ connectionString: values.database, max: 20 });
  await pool.query("CREATE TABLE IF NOT EXISTS accounts (id text PRIMARY KEY, balance bigint NOT NULL)");
  // A GET without the fields is not compared. One with the fields is compared with the writes.
  const fenced = fencing({ watermarks: postgres, compare: values.compare, unfenced: ["GET"] });
  const server = http.createServer(faces[values.face](fenced, new Accounts(pool)));
  server.listen(Number(values.listen), "127.0.0.1", () => {
    // The parent process reads this line to learn the port.
    console.log(JSON.stringify({ listening: `127.0.0.1:${server.address().port}` }));
  });
}

main();
