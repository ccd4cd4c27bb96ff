// Holds the handler's answer back until its head is known, and then decides whether it may be sent.
"use strict";

// Every way to begin an answer is replaced: `write` and `end` would call Node's own `writeHead`, and then go on with the
// handler's body.
function holdBack(request, response, fence, log) {
  const own = {};
  for (const name of ["writeHead", "flushHeaders", "write", "end"]) own[name] = response[name].bind(response);
  let state = "held";

  // Whether the handler's answer is sent. `given`: fields that come with the status.
  const isGiven = (status = response.statusCode, given = undefined) => {
    if (state === "held") {
      const objection = fence.objection(status, saysStale(response, given));
      state = objection ? "replaced" : "given";
      if (objection?.reason === "unclaimed") log(unclaimed(request, fence, status));
      objection?.answer(response, own);
    }
    return state === "given";
  };

  response.writeHead = (status, ...rest) => {
    if (isGiven(status, rest.at(-1))) own.writeHead(status, ...rest);
    return response;
  };
  response.flushHeaders = () => {
    if (isGiven()) own.flushHeaders();
  };
  response.write = (...all) => {
    if (isGiven()) return own.write(...all);
    tell(all);
    return true;
  };
  response.end = (...all) => {
    if (isGiven()) return own.end(...all);
    tell(all);
    return response;
  };
}

function unclaimed(request, fence, status) {
  const path = request.originalUrl ?? request.url;
  return (
    `error: ${request.method} ${path.split("?")[0]} ${fence.token ?? fence.number}: answered ${status} without a claim: ` +
    "it may have taken effect, and a stale request would have as well; call claim() in the transaction of the effect"
  );
}

// Whether the handler itself answers that the request is stale, by a field set before or given with the status.
function saysStale(response, given) {
  const pairs = Array.isArray(given) ? chunked(given) : typeof given === "object" ? Object.entries(given ?? {}) : [];
  const field = pairs.find(([name]) => String(name).toLowerCase() === "fencing-refusal");
  return String(field ? field[1] : response.getHeader("fencing-refusal")) === "stale";
}

// Node accepts a flat list of names and values, and a list of pairs.
function chunked(list) {
  if (Array.isArray(list[0])) return list;
  return list.flatMap((name, at) => (at % 2 === 0 ? [[name, list[at + 1]]] : []));
}

// Callbacks for written bytes are called, although the bytes were discarded.
function tell(all) {
  const done = all.find((one) => typeof one === "function");
  if (done) process.nextTick(done);
}

module.exports = { holdBack };
