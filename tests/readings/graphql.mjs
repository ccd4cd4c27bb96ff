// Which operations a parser of GraphQL finds in a document: one document a line in hexadecimal digits, one reading a line, as reader.mjs.
// Each kind of operation once, in the order of the alphabet. `node graphql.mjs PACKAGE`.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// Node looks for what is imported beside this file only, and for what is required also in `NODE_PATH`.
const { parse } = createRequire(import.meta.url)(`${process.argv[2]}/language`);

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  let reading = "!";
  try {
    const { definitions } = parse(Buffer.from(line, "hex").toString());
    const operations = definitions.filter(({ kind }) => kind === "OperationDefinition");
    const kinds = new Set(operations.map(({ operation }) => operation));
    reading = "=" + Buffer.from([...kinds].sort().join(" ")).toString("hex");
  } catch {
    // It cannot be read.
  }
  console.log(reading);
}
