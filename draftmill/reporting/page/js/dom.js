// Elements. Whatever comes from the data gets into the page here, as text with its control characters escaped.

const UNSAFE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const JOINERS = "\u200c\u200d"; // scripts and emoji need them, and they move nothing

const byId = (id) => document.getElementById(id);

function visible(value) {
  return String(value).replace(UNSAFE, (character) =>
    JOINERS.includes(character) ? character : `\\u{${character.codePointAt(0).toString(16)}}`);
}

// el("p", {class: "note"}, "text", node, [more]); null and false are left out.
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...content(children));
  return node;
}

function content(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== false && child !== undefined)
    .map((child) => (child instanceof Node ? child : document.createTextNode(visible(child))));
}

function refill(node, ...children) {
  node.replaceChildren(...content(children));
}

// Text of rows: shown apart from its surroundings, whichever way it is written.
const foreign = (text) => el("bdi", {}, text);
const code = (text) => el("code", {}, foreign(text));

// rows: arrays of cells; numbers stand right. A cell is text, a number or a node.
function table(head, rows, {caption = null, words = 1} = {}) {
  return el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption ?? head.join(", ")},
    el("table", {},
      caption && el("caption", {}, caption),
      el("thead", {}, el("tr", {}, head.map((title, at) => el("th", {scope: "col", class: at < words ? null : "number"}, title)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) =>
        at === 0 ? el("th", {scope: "row"}, cell) : el("td", {class: at < words ? null : "number"}, cell)))))));
}

// pairs: [name, value, and whether it takes a line of its own].
function facts(pairs) {
  return el("dl", {class: "facts"}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value, wide]) => el("div", {class: wide ? "wide" : null}, el("dt", {}, name), el("dd", {}, value))));
}

function folded(title, ...children) {
  return el("details", {}, el("summary", {}, title), children);
}
