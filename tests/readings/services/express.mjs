// How a service with Express 4 reads `id`: by `req.param`, which has path, body and query; below `/forms` also a multipart body, by
// multer. `node express.mjs PORT`.

import { createRequire } from "node:module";

// Node looks for what is imported beside this file only, and for what is required also in `NODE_PATH`.
const require = createRequire(import.meta.url);
const express = require("express-4");
const multer = require("multer");

const service = express();
service.use(express.json(), express.urlencoded({ extended: true }));
const read = (request, response) => {
  const id = request.param("id");
  response.type("text/plain");
  response.send(id === undefined || id === null ? "-" : typeof id === "object" ? "*" : `=${id}`);
};
service.all(["/accounts/:id", "/accounts", "/lists"], read);
service.post("/forms", multer().any(), read);
service.use((error, request, response, next) => response.type("text/plain").send("!"));
service.listen(Number(process.argv[2]), "127.0.0.1");
