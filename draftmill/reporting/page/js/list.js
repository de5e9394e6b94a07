// The list of rows: thousands of them, of which only those in sight are elements.

const ENTRY_PX = 46; // height of an entry; style.css says the same
const MARGIN = 6; // entries drawn beyond either edge

const list = {shown: [], chosen: null};

function showList(entries) {
  list.shown = entries;
  byId("spacer").style.height = `${entries.length * ENTRY_PX}px`;
  drawList();
}

function drawList() {
  const box = byId("list");
  const first = Math.max(0, Math.floor(box.scrollTop / ENTRY_PX) - MARGIN);
  const last = Math.min(list.shown.length, Math.ceil((box.scrollTop + box.clientHeight) / ENTRY_PX) + MARGIN);
  refill(byId("spacer"), list.shown.slice(first, last).map((entry, at) => option(entry, first + at)));
  const seen = place() >= first && place() < last;
  if (seen) box.setAttribute("aria-activedescendant", `entry-${list.chosen.at}`);
  else box.removeAttribute("aria-activedescendant");
}

function option(entry, place) {
  const node = el("div", {id: `entry-${entry.at}`, class: "entry", role: "option", "data-at": entry.at,
    "aria-selected": entry === list.chosen ? "true" : "false", "aria-setsize": list.shown.length, "aria-posinset": place + 1},
    el("span", {class: "key"}, entry.key.slice(0, 12)), el("span", {class: entry.reason ? "reason bad" : "reason"}, entry.reason ?? "good"),
    el("span", {class: "prompt-id"}, foreign(entry.promptId)), el("span", {class: "size"}, `${count(entry.length)} ids`));
  node.style.top = `${place * ENTRY_PX}px`;
  return node;
}

const place = () => list.shown.indexOf(list.chosen);

// The chosen row is brought into sight in the list, never the page moved for it.
function choose(entry, options) {
  list.chosen = entry;
  const box = byId("list");
  const top = place() * ENTRY_PX;
  if (place() >= 0 && (top < box.scrollTop || top + ENTRY_PX > box.scrollTop + box.clientHeight)) {
    box.scrollTop = top - box.clientHeight / 2 + ENTRY_PX / 2;
  }
  drawList();
  history.replaceState(null, "", `#row=${encodeURIComponent(entry.key)}`);
  return showRow(entry, options);
}

function step(by, options) {
  if (!list.shown.length) return null;
  const at = Math.min(list.shown.length - 1, Math.max(0, place() < 0 ? 0 : place() + by));
  return choose(list.shown[at], options);
}

function startList() {
  const box = byId("list");
  box.addEventListener("scroll", () => requestAnimationFrame(drawList), {passive: true});
  new ResizeObserver(drawList).observe(box);
  box.addEventListener("click", ({target}) => {
    const entry = target.closest(".entry");
    if (entry) choose(store.entries[entry.dataset.at]);
  });
}
