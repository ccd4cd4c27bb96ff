// What Node takes for one value: as convert.py.

import { createInterface } from "node:readline";

const how = {
  "Number(id)": Number,
  "BigInt(id)": BigInt,
  "parseInt(id, 10)": (text) => parseInt(text, 10),
  toLowerCase: (text) => text.toLowerCase(),
};

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const [name, , spelling] = line.split(" ").map((word) => Buffer.from(word, "hex").toString());
  let reading = "!";
  try {
    const value = how[name](spelling);
    if (!Number.isNaN(value)) reading = "=" + Buffer.from(String(value)).toString("hex");
  } catch {
    // It is refused.
  }
  console.log(reading);
}
