// Lets a service refuse requests that were overtaken: it compares their fencing tokens with the newest that it has seen,
// in the transaction of the effect.
"use strict";

const { deprecate } = require("node:util");
const { holdBack } = require("./answer.js");
const { deadline } = require("./deadline.js");
const { Fence, StaleTokenError } = require("./fence.js");
const { postgres } = require("./postgres.js");
const { Settings } = require("./settings.js");
const { found, read } = require("./stamp.js");
const { Problem } = require("./problem.js");

// A middleware for the routes that the policy fences. Their handlers have to claim before they say that something is
// done.
//
// watermarks the store of the watermarks: `postgres`
// compare    "token", or "number" for services that get several requests of one tenure
// fields     {token, number}: other names, as in `fields:` of the policy
// unfenced   methods whose requests pass without a fence if they have none of the fields
// clockError refuse what comes after Fencing-Not-After as well, before the token is compared: a late request is then answered
//            expired, also if its token is stale. Milliseconds, the most by which the wall clocks of sender and service
//            differ. Default: the token alone decides
// log        a function for mistakes of the service. Default: `console.error`
function fencing(options) {
  const settings = new Settings(options);

  // The fence of a request; null if it needs none. Throws a Problem.
  const enter = (request, response) => {
    const present = found(request.rawHeaders, settings);
    if (settings.unfenced.includes(request.method) && present.isEmpty()) return null;
    const fence = new Fence(read(present, settings), settings);
    holdBack(request, response, fence, settings.log);
    return fence;
  };

  // Runs `next` with the fence, or refuses the request.
  const guard = (request, response, next) => {
    let fence;
    try {
      // A request that came too late is refused before its token is read. The field may be missing here.
      if (settings.timing) settings.timing.read(request.rawHeaders);
      fence = enter(request, response);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.reason === "expired") problem.answerAt(response, settings.timing);
      else problem.answer(response);
      return undefined;
    }
    return next(fence);
  };

  return {
    // For `http.createServer`: the handler is `(request, response, fence)`, and may be asynchronous.
    http: (handler) => (request, response) =>
      guard(request, response, async (fence) => {
        try {
          await handler(request, response, fence);
        } catch (error) {
          fail(request, response, error, settings.log);
        }
      }),

    // For Express: `app.post(path, fenced.express, handler)`. The handler finds `request.fence`.
    express: (request, response, next) =>
      guard(request, response, (fence) => {
        request.fence = fence;
        next();
      }),
  };
}

function fail(request, response, error, log) {
  if (!(error instanceof StaleTokenError)) log(`error: ${request.method} ${request.url.split("?")[0]}: ${error?.stack ?? error}`);
  if (response.writableEnded) return;
  if (response.headersSent) {
    // The head of the answer is sent already, and the body would not fit it.
    response.destroy();
    return;
  }
  // The held-back answer replaces that of a stale request.
  response.writeHead(500, { "Content-Type": "text/plain" });
  response.end("the service failed\n");
}

module.exports = { deadline, fencing, postgres, Fence, StaleTokenError };

// The former name, for one version: the same class, so `instanceof` goes on.
Object.defineProperty(module.exports, "Stale", {
  get: deprecate(() => StaleTokenError, "Stale is StaleTokenError now", "FENCING001"),
});
