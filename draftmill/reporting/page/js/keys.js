// The keyboard. Keys of one letter can be switched off, as they get in the way of some who speak to their computer.

const KEYS = [
  ["/", "search"], ["Esc", "from the search to the rows"], ["Enter", "search: the first row found, or the next place of the id; rows: into the ids"],
  ["j k", "next and previous row"], ["\u2191 \u2193", "in the list: next and previous row"],
  ["\u2190 \u2192", "in the ids: next and previous id"], ["Home End", "first and last"],
  ["m", "next loss mask"], ["n N", "next and previous place of the id searched for"], ["?", "these keys"],
];

const LETTERS = {
  j: () => step(1, {focus: inFlow()}),
  k: () => step(-1, {focus: inFlow()}),
  m: () => setMask(MASKS[(MASKS.indexOf(view.mask) + 1) % MASKS.length]),
  n: () => occurrence(1),
  N: () => occurrence(-1),
  "/": () => byId("query").focus(),
  "?": () => { byId("help").open = true; byId("help").scrollIntoView({block: "nearest"}); },
};

const IN_LIST = {
  ArrowDown: () => step(1), ArrowUp: () => step(-1), PageDown: () => step(10), PageUp: () => step(-10),
  Home: () => step(-list.shown.length), End: () => step(list.shown.length),
  Enter: () => { if (view.row) moveTo(view.current); },
};

const IN_FLOW = {
  ArrowRight: () => moveTo(view.current + 1), ArrowLeft: () => moveTo(view.current - 1),
  Home: () => moveTo(0), End: () => moveTo(view.row.ids.length - 1),
  Escape: () => byId("list").focus(),
};

const inFlow = () => byId("flow").contains(document.activeElement);
const types = (node) => node.matches("select, input:not([type=radio]):not([type=checkbox])");

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const {target, key} = event;
  if (types(target)) {
    if (key === "Escape") byId("list").focus();
    return;
  }
  const here = byId("list").contains(target) ? IN_LIST : byId("flow").contains(target) && view.row ? IN_FLOW : {};
  const act = (Object.hasOwn(here, key) && here[key]) || (byId("single").checked && Object.hasOwn(LETTERS, key) && LETTERS[key]);
  if (!act) return;
  event.preventDefault();
  act();
}

function startKeys() {
  refill(byId("keys"), KEYS.map(([keys, does]) => el("div", {}, el("dt", {}, keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, does))));
  document.addEventListener("keydown", pressed);
}
