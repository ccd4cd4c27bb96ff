// The same routes with Express and with plain http.
"use strict";

const { StaleTokenError } = require("../index.js");
const { NotEnough, OtherAccount } = require("./accounts.js");

const SIGNS = { debit: -1n, credit: 1n };
const isAmount = (order) => Number.isSafeInteger(order?.amount) && order.amount > 0;

// Answers to errors that are no failure of the service.
function told(error) {
  if (error instanceof NotEnough) return [422, "not enough is there"];
  if (error instanceof OtherAccount) return [403, "the fence is of another account"];
  return undefined;
}

function express(fenced, accounts) {
  const app = require("express")();
  app.use(fenced.express);
  const move = (sign) => async (request, response) => {
    if (!isAmount(request.body)) return response.status(400).json("an amount in cents is wanted");
    const balance = await accounts.move(sign, request.fence, request.params.id, request.body, request.query.work_ms);
    return response.json({ balance: Number(balance) });
  };
  for (const [verb, sign] of Object.entries(SIGNS)) {
    app.post(`/v1/accounts/:id/${verb}`, require("express").json(), move(sign));
  }
  app.get("/v1/accounts/:id", async (request, response) => {
    const balance = await accounts.balance(request.fence, request.params.id);
    response.json({ balance: Number(balance) });
  });
  app.use((error, request, response, next) => {
    if (response.headersSent) return next(error);
    const known = told(error);
    if (known) return response.status(known[0]).json(known[1]);
    if (!(error instanceof StaleTokenError)) console.error(error);
    return response.status(error.status ?? 500).json("the service failed");
  });
  return app;
}

function http(fenced, accounts) {
  return fenced.http(async (request, response, fence) => {
    const { pathname, searchParams } = new URL(request.url, "http://service");
    const [, id, verb] = /^\/v1\/accounts\/([^/]+)(?:\/(debit|credit))?$/.exec(pathname) ?? [];
    const isKnown = id !== undefined && request.method === (verb ? "POST" : "GET");
    if (!isKnown) return tell(response, 404, "nothing is here");
    try {
      if (!verb) return tell(response, 200, { balance: Number(await accounts.balance(fence, id)) });
      const order = await body(request);
      if (!isAmount(order)) return tell(response, 400, "an amount in cents is wanted");
      const balance = await accounts.move(SIGNS[verb], fence, id, order, searchParams.get("work_ms"));
      return tell(response, 200, { balance: Number(balance) });
    } catch (error) {
      const known = told(error);
      if (!known) throw error;
      return tell(response, ...known);
    }
  });
}

async function body(request) {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function tell(response, status, said) {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(said));
}

module.exports = { express, http };
