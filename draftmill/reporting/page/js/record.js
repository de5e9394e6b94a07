// Where it comes from: head, servers, recipe and provenance, folded away.

function header(data) {
  refill(byId("head"),
    el("p", {class: "kind"}, "draftmill report"),
    el("h1", {}, foreign(data.label), ` manifest ${data.manifest}`),
    facts([["dataset", code(data.dataset)], ["sealed", when(data.created_at)],
      ["parent", data.parent ? `manifest ${data.parent}` : "none"], ["made by", `draftmill ${data.draftmill}`]]));
  refill(byId("foot"), el("p", {}, "One file: it fetches nothing and sends nothing. Rows are shown as data, whatever they say."));
}

function contents() {
  const titles = [...document.querySelectorAll("main > section")].map((node) => [node.id, node.querySelector("h2").textContent]);
  refill(byId("contents"), el("ul", {}, titles.map(([id, title]) => el("li", {}, el("a", {href: `#${id}`}, title)))));
}

function origins(data) {
  const servers = data.servers ?? [];
  return section("origins", "Where it comes from",
    servers.length > 0 && [el("h3", {}, "Servers"), servers.map(reported)],
    Object.entries(data.structures ?? {}).map(([variant, found]) => folded([`Structure of variant `, foreign(variant)], facts(flat(found)))),
    folded("Recipe", facts(flat(data.recipe ?? {}))),
    folded("Provenance", facts(flat(data.provenance ?? {}))));
}

const MANY = 16; // items of a list; longer ones are folded
const NAMED = ["url", "name", "version", "engine", "model", "weight_version"]; // of a server, seen without unfolding

function reported(server) {
  const [short, all] = [NAMED.filter((name) => server[name] !== undefined).map((name) => [name, server[name]]), flat(server)];
  return [facts(flat(Object.fromEntries(short))), all.length > short.length && folded("All it reported", facts(all))];
}

// Nested data as lines: engine.urls -> value.
function flat(value, name = "") {
  if (value === null || value === undefined) return [];
  if (Array.isArray(value) && value.every((item) => item === null || typeof item !== "object")) {
    const all = code(value.length ? value.join(", ") : "none");
    return [[name, value.length > MANY ? folded(`${count(value.length)} of them`, all) : all]];
  }
  if (typeof value !== "object") return [[name, code(String(value))]];
  return Object.entries(value).flatMap(([key, inside]) => flat(inside, name ? `${name}.${key}` : key));
}
