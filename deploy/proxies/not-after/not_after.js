// Refuses requests that came too late to be begun: the rule of `Fencing-Not-After`, for nginx (njs 0.7.9 and newer).
import fs from "fs";

// The most by which the wall clocks of the sender and of this machine differ, in milliseconds.
const CLOCK_ERROR_MS = 500;
// `proxy_connect_timeout` of nginx.conf: a request may wait as long behind the check.
const CONNECT_MS = 1000;
// Requests of these methods pass if they are of no fenced route.
const UNFENCED = ["GET", "HEAD"];

const FIELD = "fencing-not-after";
const ITEM =
  '"(?:[ !#-\\[\\]-~]|\\\\["\\\\])*"|-?[0-9]{1,12}\\.[0-9]{1,3}|-?[0-9]{1,15}' +
  "|[A-Za-z*][!#$%&'*+.^_`|~:/0-9A-Za-z-]*|:[A-Za-z0-9+/=]*:|\\?[01]|@-?[0-9]{1,15}" +
  '|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"';
const PARAMETER = "; *([a-z*][a-z0-9_.*-]*)(?:=(" + ITEM + "))?";
const FORM = new RegExp("^(0|[1-9][0-9]{0,14})((?:; *[a-z*][a-z0-9_.*-]*(?:=(?:" + ITEM + "))?)*)$");

// Of this boot of the kernel; undefined where /proc/uptime may tell another clock than that of the sender: in a time
// namespace with an offset, and where something is mounted over the file.
const BOOT = bootId();

function bootId() {
  try {
    const id = fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    const mounts = fs.readFileSync("/proc/self/mountinfo", "utf8").split("\n");
    const points = mounts.map((line) => line.split(" ")[4] || "");
    if (points.some((point) => point === "/proc/uptime" || point.startsWith("/proc/sys/kernel/random"))) return undefined;
    return id !== "" && !hasOffset() ? id : undefined;
  } catch (e) {
    return undefined;
  }
}

function hasOffset() {
  let offsets;
  try {
    offsets = fs.readFileSync("/proc/self/timens_offsets", "utf8");
  } catch (e) {
    // A kernel without time namespaces has no such file.
    if (e.code === "ENOENT") return false;
    throw e;
  }
  return /[ \t]-?[1-9]/.test(offsets);
}

// Milliseconds since the boot, rounded up to the safe side; undefined if they cannot be read.
function uptime() {
  try {
    const text = fs.readFileSync("/proc/uptime", "utf8");
    const found = /^([0-9]+)\.([0-9][0-9]) /.exec(text);
    return found ? Number(found[1]) * 1000 + Number(found[2]) * 10 + 10 : undefined;
  } catch (e) {
    return undefined;
  }
}

// The moment of a field; undefined if the value is not of its form.
function parse(value) {
  const form = value.length <= 128 ? FORM.exec(value) : null;
  if (!form) return undefined;
  const found = { boot: [], uptime: [] };
  const parameters = new RegExp(PARAMETER, "g");
  for (let one = parameters.exec(form[2]); one; one = parameters.exec(form[2])) {
    if (found[one[1]]) found[one[1]].push(one[2] || "");
  }
  const boots = found.boot;
  const uptimes = found.uptime;
  if (boots.length + uptimes.length === 0) return { wall: Number(form[1]) };
  if (boots.length !== 1 || uptimes.length !== 1) return undefined;
  if (!boots[0].startsWith('"') || !/^(0|[1-9][0-9]{0,14})$/.test(uptimes[0])) return undefined;
  return { wall: Number(form[1]), boot: boots[0].slice(1, -1), uptime: Number(uptimes[0]) };
}

function isInTime(notAfter) {
  const now = BOOT !== undefined && notAfter.boot === BOOT ? uptime() : undefined;
  if (now !== undefined) return now + CONNECT_MS < notAfter.uptime;
  return Date.now() + CLOCK_ERROR_MS + CONNECT_MS < notAfter.wall;
}

function refuse(r, status, reason, title) {
  r.headersOut["Content-Type"] = "application/problem+json";
  if (reason === "expired") r.headersOut["Fencing-Refusal"] = reason;
  r.return(status, JSON.stringify({ title: title, status: status, reason: reason }));
}

// nginx has read the body when this runs.
function check(r) {
  const plain = (name) => name.toLowerCase().replace(/[^a-z0-9]/g, "-");
  const fields = r.rawHeadersIn.filter((field) => plain(field[0]) === FIELD);
  const isFenced = r.rawHeadersIn.some((field) => plain(field[0]) === "fencing-key");
  if (fields.length === 0) {
    if (UNFENCED.includes(r.method) && !isFenced) return r.internalRedirect("@service");
    return refuse(r, 403, "not-after-missing", "there is no Fencing-Not-After: the way in is the gateway");
  }
  const isOne = fields.length === 1 && fields[0][0].toLowerCase() === FIELD;
  const notAfter = isOne ? parse(fields[0][1]) : undefined;
  if (!notAfter) return refuse(r, 400, "not-after-malformed", "Fencing-Not-After cannot be read");
  if (!isInTime(notAfter)) return refuse(r, 412, "expired", "the request came too late to be begun");
  return r.internalRedirect("@service");
}

function clock() {
  return Date.now() + ";error=" + CLOCK_ERROR_MS;
}

export default { check, clock };
