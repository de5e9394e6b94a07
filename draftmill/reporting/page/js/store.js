// The rows. Their index is there first; blocks are unpacked when the browser has nothing else to do, or when asked for.

const store = {
  entries: [], // as listed: {at, key, promptId, variant, reason, finish, length, block, row: null until unpacked}
  pieces: {}, // id -> [text, raw, half]
  packed: [], // elements that hold a block
  blocks: [], // promises of the blocks that were asked for
  unpacked: 0, // blocks
  onBlock: [], // called after each
};

const idle = window.requestIdleCallback ? (work) => requestIdleCallback(work, {timeout: 500}) : (work) => setTimeout(work, 16);

async function unpack(element) {
  const bytes = Uint8Array.from(atob(element.textContent), (character) => character.charCodeAt(0));
  element.remove();
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function openStore() {
  store.packed = [...document.querySelectorAll("script.block")];
  const index = await unpack(byId("index"));
  store.entries = index.map(([key, promptId, variant, reason, finish, length, block], at) =>
    ({at, key, promptId, variant, reason, finish, length, block, row: null}));
  store.firsts = [];
  for (const {at, block} of store.entries) store.firsts[block] ??= at;
  store.piecesReady = unpack(byId("pieces")).then((pieces) => { store.pieces = pieces; });
}

function block(number) {
  store.blocks[number] ??= unpack(store.packed[number]).then((rows) => {
    rows.forEach((row, at) => { store.entries[store.firsts[number] + at].row = row; });
    store.unpacked += 1;
    store.onBlock.forEach((told) => told());
  });
  return store.blocks[number];
}

async function rowOf(entry) {
  await Promise.all([store.piecesReady, block(entry.block)]);
  return entry.row;
}

function unpackAll(number = 0) {
  if (number < store.packed.length) idle(() => block(number).then(() => unpackAll(number + 1)));
}
