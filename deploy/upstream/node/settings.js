// The settings of a fence: what is compared, the names of the fields, and the methods that need no fence.
"use strict";

const { Timing } = require("./not-after.js");
const { plain } = require("./spelling.js");

class Settings {
  constructor({ marks, compare = "token", fields = {}, unfenced = [], clockError, log = console.error } = {}) {
    const { token = "Fencing-Token", number = "Fencing-Number" } = fields;
    if (!marks) throw new TypeError("fencing: `marks` says where the marks are");
    if (compare !== "token" && compare !== "number") throw new TypeError("fencing: `compare` is token or number");
    this.names = { token, number, key: "Fencing-Key", mode: "Fencing-Mode" };
    if (new Set(Object.values(this.names).map(plain)).size < 4) throw new TypeError("fencing: two fields have one name");
    Object.assign(this, { marks, compare, unfenced, timing: clockError === undefined ? null : new Timing({ clockError }), log });
  }
}

module.exports = { Settings };
