// The answers of the middleware (RFC 9457).
"use strict";

const ANSWERS = {
  "token-missing": [403, "there is no token: the way in is the gateway"],
  "token-malformed": [400, "the token cannot be read"],
  stale: [412, "a newer request was let in; nothing was done"],
  unclaimed: [500, "the service did not compare the token; the outcome of the request is unknown"],
  "claimed-twice": [500, "the service claimed twice; the outcome of the first claim is unknown"],
  expired: [412, "the request came too late to be begun"],
  "not-after-missing": [403, "there is no Fencing-Not-After: the way in is the gateway"],
  "not-after-malformed": [400, "Fencing-Not-After cannot be read"],
};

class Problem extends Error {
  constructor(reason) {
    const [status, title] = ANSWERS[reason];
    super(title);
    Object.assign(this, { status, title, reason });
  }

  // `own`: Node's own methods of the response.
  answer(response, own = response) {
    // The fields of the replaced answer.
    for (const name of response.getHeaderNames()) response.removeHeader(name);
    const { title, status, reason } = this;
    const body = JSON.stringify({ title, status, reason });
    const fields = { "Content-Type": "application/problem+json", "Content-Length": Buffer.byteLength(body) };
    // Tells the gateway that this 412 is about the fence, and not about a client's `If-Match`.
    if (status === 412) fields["Fencing-Refusal"] = reason;
    own.writeHead(status, fields);
    own.end(body);
  }

  // Refuses a request that no handler has seen, and shows the clock by which it was refused.
  answerAt(response, timing) {
    const own = {
      writeHead: (...all) => {
        timing.tell(response);
        response.writeHead(...all);
      },
      end: (body) => response.end(body),
    };
    this.answer(response, own);
  }
}

const refused = (reason) => new Problem(reason);

module.exports = { Problem, refused };
