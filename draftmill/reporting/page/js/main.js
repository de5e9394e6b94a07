// The page from top to bottom: the report at once, then the list of rows, then row after row.

const report = JSON.parse(byId("data").textContent);

// To the row that the address names, as #row=KEY or the beginning of a key.
function follow() {
  const key = linkedKey();
  if (key === null) return false;
  const entry = store.entries.find((found) => found.key.startsWith(key));
  refill(byId("missing"), entry ? [] : ["Row ", code(key), " is not among the rows in this page; draftmill show has it."]);
  if (!entry) return false;
  if (!list.shown.includes(entry)) { byId("search").reset(); search(); }
  choose(entry);
  byId("rows").scrollIntoView();
  return true;
}

function linkedKey() {
  const found = /^#row=(.+)$/.exec(location.hash)?.[1];
  try {
    return found ? decodeURIComponent(found) : null;
  } catch { // no address of ours
    return null;
  }
}

// On paper nothing can be unfolded; a plot's numbers stay away.
function opened() {
  document.querySelectorAll("details:not(#help, .numbers *)").forEach((node) => { node.open = true; });
}

function introduction({total, embedded, how}) {
  const firsts = [null, ...distinct("reason")].map((reason) => store.entries.find((entry) => entry.reason === reason)).filter((entry) => entry);
  refill(byId("rows-how"), `${count(embedded)} of ${plural(total, "row")}. `, how, " Examples: ",
    firsts.map((entry, at) => [at ? ", " : "", rowLink(entry.key, entry.reason ?? "good")]), ".");
}

async function start() {
  header(report);
  byId("rows").before(...[outcome, reasons, lengths, finish, throughput, drift, coverage, roundTrip, origins]
    .map((made) => made(report)).filter((node) => node));
  contents();
  addEventListener("beforeprint", opened);
  await openStore();
  introduction(report.rows);
  startTokens();
  startList();
  startSearch();
  startKeys();
  addEventListener("hashchange", follow);
  if (!follow() && list.shown.length) {
    const hash = location.hash;
    choose(list.shown[0]);
    history.replaceState(null, "", hash || location.pathname + location.search);
  }
  unpackAll();
}

start().catch((error) => {
  refill(byId("missing"), `The rows cannot be shown in this browser: ${error.message}`);
});
