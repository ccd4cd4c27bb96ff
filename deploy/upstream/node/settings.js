// The settings of a fence: what is compared, the names of the fields, and the methods that need no fence.
"use strict";

const { deprecate } = require("node:util");
const { Timing } = require("./not-after.js");
const { plain } = require("./spelling.js");

class Settings {
  // `marks`: the former name of `watermarks`, for one version.
  constructor({ marks, watermarks = renamed(marks), compare = "token", fields = {}, unfenced = [], clockError, log = console.error } = {}) {
    const { token = "Fencing-Token", number = "Fencing-Number" } = fields;
    if (!watermarks) throw new TypeError("fencing: `watermarks` says where the watermarks are");
    if (compare !== "token" && compare !== "number") throw new TypeError("fencing: `compare` is token or number");
    this.names = { token, number, key: "Fencing-Key", mode: "Fencing-Mode" };
    if (new Set(Object.values(this.names).map(plain)).size < 4) throw new TypeError("fencing: two fields have one name");
    Object.assign(this, { watermarks, compare, unfenced, timing: clockError === undefined ? null : new Timing({ clockError }), log });
  }
}

const warn = deprecate(() => {}, "the option `marks` is `watermarks` now", "FENCING002");

function renamed(marks) {
  if (marks) warn();
  return marks;
}

module.exports = { Settings };
