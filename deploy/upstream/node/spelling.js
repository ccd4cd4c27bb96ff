// Which names of fields servers take for one another.
"use strict";

// Without the letters of other alphabets, of which some become ASCII in lower case.
const lower = (name) => name.replace(/[A-Z]/g, (letter) => letter.toLowerCase());

// One spelling for all that some server takes for one name: CGI and its heirs make one variable of `-` and `_`.
const plain = (name) => lower(name).replace(/[^a-z0-9]/g, "-");

module.exports = { lower, plain };
