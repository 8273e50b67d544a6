// The whole script of the page: keys, lists by a column, and the part that changes while a run runs. Without it all pages work; a running
// run is then seen anew when its page is loaded anew.
"use strict";

const PERIOD = 1000;

async function follow(part) {
  let failures = 0;
  for (;;) {
    await new Promise((done) => setTimeout(done, PERIOD * Math.min(30, 2 ** failures)));
    if (document.hidden) continue;
    try {
      const answer = await fetch(part.dataset.live, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      const made = new DOMParser().parseFromString(text, "text/html").querySelector("[data-status]");
      failures = 0;
      if (!made) continue;
      if (made.dataset.status !== part.querySelector("[data-status]").dataset.status) return location.reload();
      const open = [...part.querySelectorAll("details")].map((one) => one.open);
      const focused = document.activeElement && part.contains(document.activeElement) ? document.activeElement.href : null;
      part.replaceChildren(made);
      part.querySelectorAll("details").forEach((one, place) => { one.open = open[place] || false; });
      if (focused) [...part.querySelectorAll("a")].find((one) => one.href === focused)?.focus();
    } catch {
      failures += 1;
    }
  }
}

function typing(target) {
  return target instanceof HTMLElement && (target.matches("input, select, textarea") || target.isContentEditable);
}

function move(by) {
  const links = [...document.querySelectorAll("[data-row]")];
  const place = links.indexOf(document.activeElement);
  const next = links[place < 0 ? (by > 0 ? 0 : links.length - 1) : place + by];
  if (next) next.focus();
}

// Between a key that sends a form and the next page, further keys would change the answer that is being sent.
let sent = false;
window.addEventListener("pageshow", () => { sent = false; });
document.addEventListener("submit", () => { sent = true; });

document.addEventListener("keydown", (event) => {
  if (sent || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  const turn = { n: "next", p: "prev" }[event.key];
  if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field) { event.preventDefault(); field.focus(); }
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (/^[a-z]$/.test(event.key) && document.querySelector(`[data-key="${event.key}"]`)) {
    document.querySelector(`[data-key="${event.key}"]`).click();
  } else if (turn) document.querySelector(`a[rel="${turn}"]`)?.click();
});

// Rows of a list by a column: the second click turns them round. Numbers by their value, and missing ones last.
function sort(head) {
  const table = head.closest("table"), place = [...head.parentNode.children].indexOf(head);
  const down = head.getAttribute("aria-sort") !== "descending";
  const value = (row) => row.cells[place]?.dataset.sort ?? row.cells[place]?.textContent.trim() ?? "";
  const order = (a, b) => {
    const [x, y] = [a, b].map((text) => parseFloat(text.replace(/[$,+]/g, "")));
    if (isNaN(x) !== isNaN(y)) return isNaN(x) ? 1 : -1;
    return (down ? -1 : 1) * (isNaN(x) ? a.localeCompare(b) : x - y);
  };
  const rows = [...table.tBodies[0].rows].sort((a, b) => order(value(a), value(b)));
  table.tBodies[0].append(...rows);
  head.parentNode.querySelectorAll("th").forEach((one) => one.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
}

document.querySelectorAll("table.list th").forEach((head) => {
  if (!head.textContent.trim() || head.querySelector("a, .hidden") || head.closest("[data-live]")) return;
  const button = document.createElement("button");
  button.append(...head.childNodes);
  button.className = "sort";
  button.addEventListener("click", () => sort(head));
  head.append(button);
});

document.querySelectorAll("[data-live]").forEach(follow);
