// Takes what is new into the page while somebody looks at it. Everything works without.
"use strict";

const EVERY = 2000;
const button = document.getElementById("refresh");
const stale = document.getElementById("stale");
let paused = false;

// What somebody is about to press or to copy stays as it is.
function isInUse(part) {
  const selection = document.getSelection();
  const selected = selection && !selection.isCollapsed && selection.containsNode(part, true);
  return part.contains(document.activeElement) || selected;
}

async function refresh() {
  const answer = await fetch(location.pathname + location.search, { headers: { accept: "text/html" } });
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (other && !isInUse(part)) part.replaceWith(other);
  }
}

async function tick() {
  if (!paused && !document.hidden) {
    try {
      await refresh();
      if (stale.textContent) stale.textContent = "";
    } catch {
      if (!stale.textContent) stale.textContent = `No answer since ${new Date().toLocaleTimeString()}.`;
    }
  }
  setTimeout(tick, EVERY);
}

if (button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume refresh" : "Pause refresh";
  });
  setTimeout(tick, EVERY);
}
