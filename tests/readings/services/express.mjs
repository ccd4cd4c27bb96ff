// How a service with Express 4 reads `id`: by `req.param`, which has path, body and query; below `/forms` also a multipart body, by
// multer; and below `/from` out of one source, or each item of a list. `node express.mjs PORT`.

import { createRequire } from "node:module";

// Node looks for what is imported beside this file only, and for what is required also in `NODE_PATH`.
const require = createRequire(import.meta.url);
const express = require("express-4");
const multer = require("multer");

const told = (id) => (id === undefined || id === null ? "-" : typeof id === "object" ? "*" : `=${id}`);
const each = (ids) => [ids ?? []].flat().map(told).join("\n") || "-";

const service = express();
service.use((request, response, next) => {
  response.type("text/plain").set("x-key", request.get("fencing-key"));
  next();
});
service.use(express.json(), express.urlencoded({ extended: true }));
const read = (request, response) => response.send(told(request.param("id")));
service.all(["/accounts/:id", "/accounts", "/lists"], read);
service.post("/forms", multer().any(), read);
service.post("/from/path/:id", (request, response) => response.send(told(request.params.id)));
service.post(/^\/from\/action\/([^/]+):cancel$/, (request, response) => response.send(told(request.params[0])));
service.post("/from/query", (request, response) => response.send(told(request.query.id)));
service.post("/from/queries", (request, response) => response.send(each(request.query.id)));
service.post("/from/field", (request, response) => response.send(told(request.get("x-id"))));
service.post("/from/member", (request, response) => response.send(told(request.body.id)));
service.post("/from/members", (request, response) => response.send(each(request.body.items.map((item) => item.id))));
service.use((error, request, response, next) => response.send("!"));
service.listen(Number(process.argv[2]), "127.0.0.1");
