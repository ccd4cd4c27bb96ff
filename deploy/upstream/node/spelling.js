// Tells which field names some server takes for the same.
"use strict";

// ASCII only, because some letters of other alphabets become ASCII in lower case.
const lower = (name) => name.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

// One spelling for all names that some server takes for the same: CGI and its heirs make one variable of `-` and `_`.
const plain = (name) => lower(name).replace(/[^a-z0-9]/g, "-");

module.exports = { lower, plain };
