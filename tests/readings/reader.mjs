// How a service in Node reads a path, a query or a body: as reader.php. A query is read by `URLSearchParams`, or by the older
// `querystring` where that is the third word.

import querystring from "node:querystring";
import { createInterface } from "node:readline";

const [part, name, older] = process.argv.slice(2);

function told(value) {
  if (value === undefined || value === null) return "-";
  return typeof value === "object" ? "*" : "=" + Buffer.from(String(value)).toString("hex");
}

const read = {
  path: (text) => told(decodeURIComponent(new URL(text, "http://service").pathname)),
  query(text) {
    if (older) return told(querystring.parse(text)[name]);
    const values = new URLSearchParams(text).getAll(name);
    return told(values.length > 1 ? values : values[0]);
  },
  body(text) {
    const value = JSON.parse(Buffer.from(text).toString());
    const isObject = typeof value === "object" && value !== null && Object.hasOwn(value, name);
    return told(isObject ? value[name] : null);
  },
}[part];

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  let reading = "!";
  try {
    reading = read(Buffer.from(line, "hex").toString());
  } catch {
    // It cannot be read.
  }
  console.log(reading);
}
