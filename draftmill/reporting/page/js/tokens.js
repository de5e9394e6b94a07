// One row: what is known of it, and its ids as pieces of text that flow as text does.
//
// Long rows are drawn in chunks, the first at once and the others when idle, and the browser skips those out of sight.

const CHUNK = 250; // ids after which a chunk ends at the next line break
const LONGEST = 1000; // ids of a chunk without one
const LONG = 4000; // ids from which the browser leaves out what is out of sight
const SLICE_MS = 8; // of drawing at a time
const PARTS = ["prompt", "marker", "reasoning", "content", "end"];
const MASKS = ["off", "completion", "content", "reasoning"];

const view = {entry: null, row: null, cells: [], current: 0, mask: "off", wanted: null, ends: []};

async function showRow(entry, {at = null, focus = false} = {}) {
  view.entry = entry;
  refill(byId("row-title"), "Row ", code(entry.key));
  const row = await rowOf(entry);
  if (view.entry !== entry) return; // another was chosen meanwhile
  Object.assign(view, {row, cells: [], current: 0, ends: row.parts});
  byId("facts").replaceChildren(...facts(about(row)).childNodes);
  refill(byId("legend"), legend(row));
  refill(byId("flow"));
  byId("flow").classList.toggle("long", row.ids.length > LONG);
  const drawing = chunks(row);
  drawing.next();
  continueDrawing(entry, drawing);
  if (at !== null) moveTo(at, {focus});
  else if (row.ids.length) { current(0); if (focus) view.cells[0].focus({preventScroll: true}); }
  tellOccurrences();
}

function about(row) {
  const meaning = (report.reasons ?? []).find(({reason}) => reason === row.reason)?.meaning;
  return [["prompt id", foreign(row.prompt_id), true], ["variant", foreign(row.variant)], ["sample", count(row.sample)],
    ["attempt", count(row.attempt)], ["finish reason", row.finish_reason],
    ["ids", `${count(row.ids.length)}, ${count(row.prompt_len)} of them the prompt's`],
    ["set aside", row.reason && [code(row.reason), meaning ? ` ${meaning}` : ""], true], ["detail", row.reason && row.detail && foreign(row.detail), true]];
}

function legend(row) {
  const sizes = Object.fromEntries(PARTS.map((name) => [name, 0]));
  let start = 0;
  for (const [end, name] of row.parts) { sizes[name] += end - start; start = end; }
  return PARTS.filter((name) => sizes[name]).map((name) => el("li", {}, el("span", {class: `t ${name}`}, name), ` ${count(sizes[name])}`));
}

// Draws a chunk, then gives way.
function* chunks(row) {
  let inside = masked(row);
  let [run, chunk] = [0, el("div", {class: "chunk"})];
  for (let at = 0; at < row.ids.length; at += 1) {
    while (row.parts[run] && at >= row.parts[run][0]) run += 1;
    const breaks = drawId(chunk, row.ids[at], at, row.parts[run]?.[1] ?? "content", inside(at));
    const size = chunk.childElementCount;
    if ((breaks && size >= CHUNK) || size >= LONGEST || at === row.ids.length - 1) {
      byId("flow").append(chunk);
      chunk = el("div", {class: "chunk"});
      yield at;
      inside = masked(row); // it may have been switched meanwhile
    }
  }
}

function continueDrawing(entry, drawing) {
  view.drawing = drawing;
  idle(() => {
    const until = performance.now() + SLICE_MS;
    while (view.entry === entry && performance.now() < until) if (drawing.next().done) return;
    if (view.entry === entry) continueDrawing(entry, drawing);
  });
}

// Whether a line ends here.
function drawId(chunk, id, at, name, on) {
  const [text, raw, half] = store.pieces[id] ?? ["", "", 0];
  const cell = el("span", {class: `t ${name}${half ? " half" : ""}${on ? " on" : ""}${id === view.wanted ? " hit" : ""}`, "data-at": at, tabindex: -1},
    text || raw || `#${id}`);
  view.cells[at] = cell;
  chunk.append(cell);
  const breaks = /\u010a|<0x0A>/.test(raw) || raw.startsWith("\\n");
  if (breaks) chunk.append(el("br"));
  return breaks;
}

function masked(row) {
  const intervals = row.masks?.[view.mask] ?? [];
  return (at) => intervals.some(([start, end]) => start <= at && at < end);
}

function partAt(at) {
  return view.ends.find(([end]) => at < end)?.[1] ?? "content";
}

// Makes an id the one the keyboard is at, and says what it is.
function current(at) {
  view.cells[view.current]?.setAttribute("tabindex", -1);
  view.current = at;
  view.cells[at].setAttribute("tabindex", 0);
  describe(at);
}

function describe(at) {
  const id = view.row.ids[at];
  const [text, raw, half] = store.pieces[id] ?? ["", "", 0];
  refill(byId("token"), el("b", {}, `id ${id}`), ` position ${count(at)} of ${count(view.row.ids.length)}, `, el("span", {class: `t ${partAt(at)}`}, partAt(at)),
    raw ? [", raw piece ", code(raw)] : ", no piece known", half ? `, half a character: bytes ${text}` : "",
    view.mask === "off" ? "" : masked(view.row)(at) ? ", supervised" : ", not supervised");
}

// Draws as far as that id first, where a long row is not drawn yet.
function moveTo(at, {focus = true} = {}) {
  const goal = Math.min(view.row.ids.length - 1, Math.max(0, at));
  while (goal >= 0 && !view.cells[goal]) if (view.drawing.next().done) break;
  if (!view.cells[goal]) return;
  current(goal);
  view.cells[goal].scrollIntoView({block: "nearest"});
  if (focus) view.cells[goal].focus({preventScroll: true});
}

function setMask(name) {
  view.mask = name;
  byId(`mask-${name}`).checked = true;
  if (!view.row) return;
  const inside = masked(view.row);
  view.cells.forEach((cell, at) => cell.classList.toggle("on", inside(at)));
  const on = (view.row.masks?.[name] ?? []).reduce((sum, [start, end]) => sum + end - start, 0);
  refill(byId("token"), name === "off" ? "No loss mask shown." : `Mask ${name}: ${count(on)} of ${plural(view.row.ids.length, "id")} supervised, underlined.`);
}

function startTokens() {
  byId("masks").append(...MASKS.map((name) => el("label", {}, el("input", {type: "radio", name: "mask", id: `mask-${name}`, value: name, checked: name === "off"}), ` ${name}`)));
  byId("masks").addEventListener("change", ({target}) => setMask(target.value));
  const flow = byId("flow");
  for (const event of ["mouseover", "focusin", "click"]) {
    flow.addEventListener(event, ({target}) => {
      const at = target.dataset?.at;
      if (at === undefined) return;
      if (event === "mouseover") describe(Number(at));
      else if (event === "click") moveTo(Number(at));
      else current(Number(at));
    });
  }
}
