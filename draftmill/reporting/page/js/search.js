// Which rows are listed: by reason, variant, the beginning of a key, a prompt id, or an id they contain.

const SEARCH_MS = 150; // after the last key, or the last block

function startSearch() {
  choices(byId("reason"), "all", [["", "all rows"], ["good", "good"], ["bad", "in quarantine"],
    ...distinct("reason").map((name) => [`=${name}`, name])]);
  const variants = distinct("variant");
  choices(byId("variant"), "", [["", "all variants"], ...variants.map((name) => [`=${name}`, name])]);
  byId("variant-label").hidden = variants.length < 2;
  let timer = null;
  const soon = () => { clearTimeout(timer); timer = setTimeout(search, SEARCH_MS); };
  byId("search").addEventListener("input", soon);
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); search(); goOn(1); });
  byId("next").addEventListener("click", () => occurrence(1));
  byId("previous").addEventListener("click", () => occurrence(-1));
  store.onBlock.push(() => { if (view.wanted !== null) soon(); else told(); });
  search();
}

const distinct = (field) => [...new Set(store.entries.map((entry) => entry[field]))].filter((value) => value !== null).sort();

function choices(node, value, options) {
  node.replaceChildren(...options.map(([name, words]) => el("option", {value: name}, words)));
}

function search() {
  const query = byId("query").value.trim();
  const reason = byId("reason").value;
  const variant = byId("variant").value;
  const before = view.wanted;
  view.wanted = byId("by").value === "id" && /^\d+$/.test(query) ? Number(query) : null;
  const byText = byId("by").value === "row" && query;
  showList(store.entries.filter((entry) =>
    (!reason || (reason === "good" ? !entry.reason : reason === "bad" ? entry.reason : `=${entry.reason}` === reason))
    && (!variant || `=${entry.variant}` === variant)
    && (!byText || entry.key.startsWith(query) || String(entry.promptId).includes(query))
    && (view.wanted === null || entry.row?.ids.includes(view.wanted))));
  if (before !== view.wanted) view.cells.forEach((cell, at) => cell.classList.toggle("hit", view.row.ids[at] === view.wanted));
  told();
  tellOccurrences();
}

function told() {
  const waiting = store.packed.length - store.unpacked;
  const loading = waiting ? ` Still unpacking: ${Math.round((100 * store.unpacked) / store.packed.length)} %.` : "";
  refill(byId("found"), `${plural(list.shown.length, "row")} of ${count(store.entries.length)}.`,
    view.wanted !== null ? ` They contain id ${view.wanted}.` : "", loading);
}

function tellOccurrences() {
  byId("occurrences").hidden = view.wanted === null || !view.row;
}

// Enter in the search: the first row found, or the next occurrence of the id.
function goOn(by) {
  if (view.wanted !== null) return occurrence(by);
  return list.shown.length ? choose(list.shown[0], {}) : null;
}

// To the next place of the wanted id, in this row or the next that has it.
function occurrence(by) {
  if (view.wanted === null) return null;
  if (view.row && place() >= 0) {
    const {ids} = view.row;
    const from = view.cells[view.current]?.classList.contains("hit") || by < 0 ? view.current + by : view.current;
    for (let at = from; at >= 0 && at < ids.length; at += by) if (ids[at] === view.wanted) return moveTo(at);
  }
  const next = list.shown[place() < 0 ? 0 : place() + by];
  if (!next) return null;
  const {ids} = next.row;
  return choose(next, {at: by > 0 ? ids.indexOf(view.wanted) : ids.lastIndexOf(view.wanted), focus: true});
}
