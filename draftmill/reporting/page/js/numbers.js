// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const fine = new Intl.NumberFormat("en", {maximumSignificantDigits: 3});
const brief = new Intl.NumberFormat("en", {notation: "compact", maximumSignificantDigits: 3});

const count = (value) => (typeof value === "number" ? whole.format(value) : "-");
const short = (value) => (value < 10000 ? whole.format(value) : brief.format(value));
const figure = (value) => (typeof value !== "number" ? String(value ?? "-")
  : Number.isInteger(value) ? whole.format(value) : fine.format(value));
const share = (value) => (typeof value !== "number" ? "-" : `${percent(100 * value)} %`);
const part = (some, all) => (all ? share(some / all) : "-");

function percent(value) {
  if (value === 0 || value === 100) return String(value);
  // Nothing that happened reads as never, nor what was missed as always.
  return value < 0.01 ? "< 0.01" : value > 99.99 ? "> 99.99" : value.toFixed(value < 1 || value > 99 ? 2 : 1);
}

const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

const when = (text) => String(text ?? "").replace("T", " ").replace(/\.\d+/, "").replace(/(\+00:00|Z)$/, " UTC");

function duration(seconds) {
  if (seconds < 120) return `${figure(seconds)} s`;
  if (seconds < 7200) return `${figure(Math.round(seconds / 6) / 10)} min`;
  return `${figure(Math.round(seconds / 360) / 10)} h`;
}
