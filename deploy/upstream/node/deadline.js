// Refuses requests that come too late to be begun. It needs no database and compares no token.
"use strict";

const { Timing } = require("./not-after.js");
const { Problem, refused } = require("./problem.js");
const { plain } = require("./spelling.js");

// A middleware, innermost: right before the handlers.
//
// unfenced     methods whose requests pass if they have neither Fencing-Not-After nor Fencing-Key
// clockError   milliseconds, the most by which the wall clocks of sender and service differ. Default: 500
// clock        for tests
function deadline({ unfenced = [], clockError, clock } = {}) {
  const timing = new Timing({ clockError, clock });

  // The deadline of a request; null if it needs none. Throws a Problem.
  const enter = (request) => {
    const names = request.rawHeaders.filter((_, at) => at % 2 === 0).map(plain);
    const isFenced = names.includes("fencing-not-after") || names.includes("fencing-key");
    if (unfenced.includes(request.method) && !isFenced) return null;
    const found = timing.read(request.rawHeaders);
    if (!found) throw refused("not-after-missing");
    return found;
  };

  const guard = (request, response, next) => {
    let found;
    try {
      found = enter(request);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      problem.answerAt(response, timing);
      return undefined;
    }
    if (found) timing.tell(response);
    return next(found);
  };

  return {
    // For `http.createServer`: the handler is `(request, response, deadline)`.
    http: (handler) => (request, response) => guard(request, response, (found) => handler(request, response, found)),

    // For Express: `app.post(path, express.json(), inTime.express, handler)`. The handler finds `request.deadline`.
    express: (request, response, next) =>
      guard(request, response, (found) => {
        request.deadline = found;
        next();
      }),
  };
}

module.exports = { deadline };
