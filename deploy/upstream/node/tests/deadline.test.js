// The contract's Fencing-Not-After, with plain http and with Express.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const { test } = require("node:test");
const express = require("express");
const { bootId, machineClock, parseUptime } = require("../clock.js");
const { deadline, fencing } = require("../index.js");
const { isInTime, parse } = require("../not-after.js");
const { STAMPED, assertAnswer, exchange, scripted, vectors } = require("./exchange.js");

const FACES = {
  http: (inTime, handler) => inTime.http(handler),
  express: (inTime, handler) => {
    const app = express();
    app.all("/pay", inTime.express, (request, response) => handler(request, response, request.deadline));
    return app;
  },
};

const moment = (wall, boot, uptime) => (boot === null ? { wall } : { wall, boot, uptime });
const done = (request, response) => response.end("done");

for (const [name, face] of Object.entries(FACES)) {
  test(`${name}: the field is read as the contract says`, async () => {
    assert.ok(vectors.not_after.length > 50);
    for (const { name: which, fields, read, refused } of vectors.not_after) {
      let found;
      const inTime = deadline({ clock: () => ({ wall: -10000 }) });
      const listener = face(inTime, (request, response, own) => {
        found = own.notAfter;
        response.end();
      });
      const answer = await exchange(listener, fields);
      assert.strictEqual(answer.fields.get("fencing-clock"), "-10000;error=500", which);
      if (refused) assertAnswer(answer, refused, which);
      else assert.strictEqual(answer.status, 200, `${which}: ${answer.body}`);
      assert.deepStrictEqual(found, read && moment(read.not_after, read.boot, read.uptime), which);
    }
  });

  test(`${name}: what is in time is decided as the contract says`, async () => {
    assert.ok(vectors.in_time.length > 20);
    for (const { name: which, value, clock_error: clockError, now, in_time: wanted } of vectors.in_time) {
      const clock = () => moment(now.wall, now.boot, now.uptime);
      assert.strictEqual(isInTime(parse(value), clock(), clockError), wanted, which);
      const answer = await exchange(face(deadline({ clock, clockError }), done), [["Fencing-Not-After", value]]);
      if (wanted) assert.strictEqual(answer.status, 200, which);
      else assertAnswer(answer, "expired", which);
    }
  });

  test(`${name}: an unfenced method passes without a deadline`, async () => {
    const listener = face(deadline({ unfenced: ["GET"] }), done);
    const free = await exchange(listener, [], "GET");
    assert.deepStrictEqual([free.status, free.fields.get("fencing-clock")], [200, undefined]);
    for (const [method, fields, reason] of [
      ["POST", [], "not-after-missing"],
      ["GET", [["Fencing_Key", "a"]], "not-after-missing"],
      ["GET", [["Fencing_Not_After", "5"]], "not-after-malformed"],
      ["GET", [["Fencing-Not-After", "5"]], "expired"],
    ]) {
      assertAnswer(await exchange(listener, fields, method), reason, `${method} ${fields}`);
    }
  });
}

test("a fence looks at the field first", async () => {
  const fenced = (settings) => fencing({ watermarks: scripted([]), ...settings }).http(done);
  assertAnswer(await exchange(fenced(), [["Fencing-Not-After", "5"]]), "token-missing", "not asked for");
  for (const [value, reason] of [["5", "expired"], ["never", "not-after-malformed"]]) {
    for (const fields of [STAMPED, []]) {
      assertAnswer(await exchange(fenced({ clockError: 500 }), [["Fencing-Not-After", value], ...fields]), reason, value);
    }
  }
  const soon = [["Fencing-Not-After", String(Date.now() + 3000)]];
  assertAnswer(await exchange(fenced({ clockError: 500 }), soon), "token-missing", "in time");
  const answer = await exchange(fenced({ clockError: 60000 }), soon);
  assertAnswer(answer, "expired", "within the clock error");
  assert.match(answer.fields.get("fencing-clock"), /^[0-9]{13};error=60000$/);
});

test("a handler that waits may ask again", async () => {
  let wall = 1000;
  const inTime = deadline({ clock: () => ({ wall }), clockError: 0 });
  const told = [];
  const listener = inTime.http((request, response, own) => {
    told.push(own.isOver());
    wall = 1500;
    told.push(own.isOver());
    response.end();
  });
  await exchange(listener, [["Fencing-Not-After", "1500"]]);
  assert.deepStrictEqual(told, [false, true]);
});

test("the clock of the kernel is read where it is that of the sender", () => {
  const [first, second] = [0, 0].map(machineClock()).map((now) => now);
  assert.ok(first.boot && first.boot === second.boot && first.uptime <= second.uptime);
  assert.strictEqual(parseUptime("651.13 294.76\n"), 651140);
  for (const text of ["", "651 2", "651.1 2", "-1.00 2"]) assert.strictEqual(parseUptime(text), undefined);
  const mount = "22 1 0:20 / /proc rw - proc proc rw\n";
  const zero = "monotonic           0         0\nboottime            0         0\n";
  for (const [id, offsets, mounts, known] of [
    ["b\n", zero, mount, true],
    ["b\n", undefined, mount, true],
    ["b\n", zero.replace(" 0  ", "-9  "), mount, false],
    ["b\n", zero, `${mount}9 2 0:5 /proc/uptime /proc/uptime rw - fuse.lxcfs lxcfs rw\n`, false],
    ["b\n", zero, `${mount}9 2 0:5 /x /proc/sys/kernel/random/boot_id ro - tmpfs x rw\n`, false],
    ["b\n", zero, undefined, false],
    ["", zero, mount, false],
    [undefined, zero, mount, false],
  ]) {
    const proc = fs.mkdtempSync(path.join(os.tmpdir(), "clock-"));
    const files = { "sys/kernel/random/boot_id": id, "self/timens_offsets": offsets, "self/mountinfo": mounts };
    for (const [name, text] of Object.entries(files)) {
      if (text === undefined) continue;
      fs.mkdirSync(path.dirname(path.join(proc, name)), { recursive: true });
      fs.writeFileSync(path.join(proc, name), text);
    }
    assert.strictEqual(bootId(proc) !== undefined, known, `${id} ${offsets} ${mounts}`);
    fs.rmSync(proc, { recursive: true });
  }
});
