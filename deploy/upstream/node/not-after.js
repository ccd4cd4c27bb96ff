// `Fencing-Not-After`: the moment after which a request must not be begun any more.
"use strict";

const { machineClock } = require("./clock.js");
const { refused } = require("./problem.js");
const { lower, plain } = require("./spelling.js");

const NOT_AFTER = "fencing-not-after";
const LONGEST = 128;
const CLOCK_ERROR_MS = 500;

// The values of RFC 9651 that a parameter may have; the longer form of a number comes first.
const ITEM =
  /"(?:[ !#-[\]-~]|\\["\\])*"|-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}|[A-Za-z*][!#$%&'*+.^_`|~:/0-9A-Za-z-]*|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"/
    .source;
const FORM = new RegExp(`^(0|[1-9][0-9]{0,14})((?:; *[a-z*][a-z0-9_.*-]*(?:=(?:${ITEM}))?)*)$`);
const PARAMETER = new RegExp(`; *([a-z*][a-z0-9_.*-]*)(?:=(${ITEM}))?`, "g");
const MILLIS = /^(0|[1-9][0-9]{0,14})$/;

// `{ wall, boot, uptime }` of a value such as `1795727217123;boot="<id>";uptime=<ms>`; undefined if it is not of this form.
// Parameters with other names are ignored.
function parse(value) {
  const form = value.length <= LONGEST ? FORM.exec(value) : null;
  if (!form) return undefined;
  const wall = Number(form[1]);
  const found = { boot: [], uptime: [] };
  for (const [, name, item = ""] of form[2].matchAll(PARAMETER)) {
    if (Object.hasOwn(found, name)) found[name].push(item);
  }
  const { boot, uptime } = found;
  if (boot.length + uptime.length === 0) return { wall };
  if (boot.length !== 1 || uptime.length !== 1 || !boot[0].startsWith('"') || !MILLIS.test(uptime[0])) return undefined;
  return { wall, boot: boot[0].slice(1, -1), uptime: Number(uptime[0]) };
}

// Whether a request may be begun now: only if it is certainly still in time. On the machine of the sender the kernel's
// clock decides, without an error; elsewhere the wall clock does.
function isInTime(notAfter, now, clockError) {
  if (notAfter.boot && notAfter.boot === now.boot) return now.uptime < notAfter.uptime;
  return now.wall + clockError < notAfter.wall;
}

// The deadline of one request, for a handler that waits once more before it begins.
class Deadline {
  #timing;

  constructor(notAfter, timing) {
    this.notAfter = notAfter;
    this.#timing = timing;
  }

  // Whether the work must not be begun any more. Check it again after a wait of your own, as for a connection.
  isOver() {
    return !isInTime(this.notAfter, this.#timing.now(), this.#timing.clockError);
  }
}

// The clock of this machine, and how far the one of the sender may be from it, in milliseconds.
class Timing {
  constructor({ clockError = CLOCK_ERROR_MS, clock = machineClock() } = {}) {
    if (!(clockError >= 0)) throw new TypeError("fencing: `clockError` is a number of milliseconds");
    Object.assign(this, { clockError, now: clock });
  }

  // The deadline of a request that is in time; null if the field is in no spelling there. Throws a Problem.
  read(raw) {
    const values = [];
    let isAlike = false;
    for (let at = 0; at < raw.length; at += 2) {
      if (lower(raw[at]) === NOT_AFTER) values.push(raw[at + 1]);
      else if (plain(raw[at]) === NOT_AFTER) isAlike = true;
    }
    if (values.length === 0 && !isAlike) return null;
    const notAfter = values.length === 1 && !isAlike ? parse(values[0]) : undefined;
    if (!notAfter) throw refused("not-after-malformed");
    const deadline = new Deadline(notAfter, this);
    if (deadline.isOver()) throw refused("expired");
    return deadline;
  }

  // What an answer shows of this clock: the sender measures by it how far the two clocks differ.
  tell(response) {
    response.setHeader("Fencing-Clock", `${this.now().wall};error=${this.clockError}`);
  }
}

module.exports = { Timing, isInTime, parse };
