// Reads the gateway's stamp on a request: the keys that it holds, the mode, and the token.
"use strict";

const { lower, plain } = require("./spelling.js");
const { refused } = require("./problem.js");

// Of fixed width and in lower case: two spellings of one token would order differently. The epoch is below 2^63.
const TOKEN = /^v1-([0-7][0-9a-f]{15})-[0-9a-f]{8}-[0-9a-f]{8}$/;
// The form is checked before a number is read: BigInt takes ` 5`, and nothing at all.
const NUMBER = /^(0|[1-9][0-9]{0,18})$/;
const LARGEST = 2n ** 63n - 1n;
// Bounds that no gateway exceeds.
const MOST_KEYS = 64;
const MOST_BYTES = 8192;
const KEY = /^[!-~]{1,512}$/;

// The values of the four fields, in the order in which they were sent.
class Present {
  constructor() {
    this.values = { token: [], number: [], key: [], mode: [] };
    this.lookAlikes = new Set();
  }

  isEmpty() {
    return this.lookAlikes.size === 0 && Object.values(this.values).every((values) => values.length === 0);
  }

  // Whether a field is there in any spelling.
  has(field) {
    return this.values[field].length > 0 || this.lookAlikes.has(field);
  }
}

// `raw`: names and values as they were sent. `request.headers` would join the values of one name.
function found(raw, { names }) {
  const present = new Present();
  for (let at = 0; at < raw.length; at += 2) {
    for (const [field, name] of Object.entries(names)) {
      if (lower(raw[at]) === lower(name)) present.values[field].push(raw[at + 1]);
      else if (plain(raw[at]) === plain(name)) present.lookAlikes.add(field);
    }
  }
  return present;
}

// Throws a Problem. Nothing is trimmed, and no part of the stamp is guessed.
function read(present, { compare }) {
  if (!present.has(compare)) throw refused("token-missing");
  const { token, number, key, mode } = present.values;
  const single = token.length < 2 && number.length < 2 && key.length === 1 && mode.length === 1;
  if (!single || present.lookAlikes.size > 0) throw refused("token-malformed");
  const keys = readKeys(key[0]);
  const marks = readMarks(token[0], number[0]);
  if (!keys || !marks || !["exclusive", "shared"].includes(mode[0])) throw refused("token-malformed");
  return { ...marks, keys, mode: mode[0] };
}

// Either may be missing here; if both are there, they have to agree.
function readMarks(token, text) {
  const epoch = token === undefined ? undefined : readEpoch(token);
  const number = text === undefined ? epoch : readNumber(text);
  const agree = token === undefined || epoch === number;
  return number !== undefined && agree ? { token: token ?? null, number } : undefined;
}

function readEpoch(token) {
  const parts = TOKEN.exec(token);
  return parts ? BigInt(`0x${parts[1]}`) : undefined;
}

function readNumber(text) {
  if (!NUMBER.test(text)) return undefined;
  const number = BigInt(text);
  return number <= LARGEST ? number : undefined;
}

function readKeys(text) {
  const keys = text.split(", ");
  const ascending = keys.every((key, at) => KEY.test(key) && (at === 0 || keys[at - 1] < key));
  const fits = keys.length <= MOST_KEYS && keys.join("").length <= MOST_BYTES;
  return ascending && fits ? keys : undefined;
}

module.exports = { found, read };
