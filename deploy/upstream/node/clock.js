// Reads the clocks of this machine: the wall clock, and the clock of its kernel since the boot.
"use strict";

const { readFileSync } = require("node:fs");

// `/proc/uptime` has hundredths of a second and rounds down: the true time is less than this above it.
const RESOLUTION_MS = 10;

// A function that gives the present moment: `{ wall, boot, uptime }` in milliseconds. `boot` and `uptime` are undefined if
// nothing is known of the kernel's clock. The boot id is read once: it does not change while a process runs.
function machineClock() {
  const boot = bootId("/proc");
  return () => {
    const wall = Date.now();
    const uptime = boot === undefined ? undefined : readUptime();
    return uptime === undefined ? { wall } : { wall, boot, uptime };
  };
}

// The boot id, if `uptime` beside it shows the clock of this boot: undefined in a time namespace with an offset, and where
// something is mounted over the file, as LXCFS does. `proc`: where procfs is mounted.
function bootId(proc) {
  try {
    const id = readFileSync(`${proc}/sys/kernel/random/boot_id`, "utf8").trim();
    const points = readFileSync(`${proc}/self/mountinfo`, "utf8").split("\n").map((line) => line.split(" ")[4] ?? "");
    const isCovered = points.some((point) => point === "/proc/uptime" || point.startsWith("/proc/sys/kernel/random"));
    return id === "" || isCovered || hasOffset(proc) ? undefined : id;
  } catch {
    return undefined;
  }
}

function hasOffset(proc) {
  let offsets;
  try {
    offsets = readFileSync(`${proc}/self/timens_offsets`, "utf8");
  } catch (error) {
    // A kernel without time namespaces has no such file.
    if (error.code === "ENOENT") return false;
    throw error;
  }
  return offsets.split("\n").some((line) => line !== "" && !/^[a-z]+\s+0\s+0$/.test(line));
}

function readUptime() {
  try {
    return parseUptime(readFileSync("/proc/uptime", "utf8"));
  } catch {
    return undefined;
  }
}

// Milliseconds, rounded up to the safe side. `text`: such as `651.13 294.76`.
function parseUptime(text) {
  const found = /^([0-9]{1,12})\.([0-9]{2}) /.exec(text);
  return found ? Number(found[1]) * 1000 + Number(found[2]) * 10 + RESOLUTION_MS : undefined;
}

module.exports = { bootId, machineClock, parseUptime };
