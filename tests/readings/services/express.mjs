// How a service with Express 4 reads `id`: by `req.param`, which has path, body and query. `node express.mjs PORT`.

import { createRequire } from "node:module";

// Node looks for what is imported beside this file only, and for what is required also in `NODE_PATH`.
const express = createRequire(import.meta.url)("express-4");

const service = express();
service.use(express.json(), express.urlencoded({ extended: true }));
service.all(["/accounts/:id", "/accounts", "/lists"], (request, response) => {
  const id = request.param("id");
  response.type("text/plain");
  response.send(id === undefined || id === null ? "-" : typeof id === "object" ? "*" : `=${id}`);
});
service.use((error, request, response, next) => response.type("text/plain").send("!"));
service.listen(Number(process.argv[2]), "127.0.0.1");
