// What came out, section by section, in the order a person asks.

const SPARED = "Share of sampled rows whose ids would have changed if their text had been decoded and encoded again: "
  + "training on such ids would teach the drafter tokens that the model never chose.";

function section(id, title, ...children) {
  return el("section", {id, "aria-labelledby": `${id}-title`}, el("h2", {id: `${id}-title`}, title), children);
}

function tile(name, value, note) {
  return el("div", {class: "tile"}, el("dt", {}, name), el("dd", {}, value), note && el("dd", {class: "note"}, note));
}

function rowLink(key, words) {
  return key ? el("a", {href: `#row=${encodeURIComponent(key)}`}, words ?? [code(key.slice(0, 12))]) : "-";
}

const added = (value) => (typeof value === "number" ? value : Object.values(value ?? {}).reduce((sum, n) => sum + n, 0));
const bar = (some, all) => el("meter", {min: 0, max: all || 1, value: some, "aria-hidden": "true"});

function outcome(data) {
  const {good_rows: good, quarantined_rows: bad, rejected} = data.counts;
  const output = data.lengths?.output;
  const turnedAway = added(rejected);
  return section("outcome", "What came out",
    el("dl", {class: "tiles"},
      tile("good rows", count(good), `${part(good, good + bad)} of the answers`),
      tile("in quarantine", count(bad), bad ? `${part(bad, good + bad)} of the answers` : "none"),
      tile("prompts rejected", count(turnedAway), "before anything was asked"),
      data.coverage && tile("supervised ids", short(data.coverage.supervised), `mask: ${data.coverage.mask}`),
      output && tile("output, mean", `${figure(Math.round(output.mean))}`, "ids an answer")),
    run(data.counts.run));
}

function run(summary) {
  if (!summary?.rows) return null;
  const rows = Object.entries(summary.rows).filter(([, n]) => n);
  return folded("The run that made this manifest, by its own count",
    table(["rows", "number"], rows.map(([name, n]) => [name, count(n)])),
    facts([["requests", count(summary.requests)], ["retries", count(summary.retries)],
      ...Object.entries(summary.tokens ?? {}).map(([name, n]) => [`${name} ids`, count(n)])]));
}

function reasons(data) {
  if (!data.reasons?.length) return section("reasons", "What was set aside", el("p", {}, "No answer was set aside."));
  const most = Math.max(...data.reasons.map(({rows}) => rows));
  return section("reasons", "What was set aside",
    table(["reason", "what it means", "rows", "", "example"], data.reasons.map(({reason, rows, meaning, example}) =>
      [code(reason), el("span", {class: "meaning"}, meaning), count(rows), bar(rows, most), rowLink(example)]), {words: 2, caption: "Reasons"}));
}

const LENGTH_TITLES = {prompt: "Prompt", reasoning: "Reasoning", content: "Content", output: "Output"};

function lengths(data) {
  const present = Object.entries(LENGTH_TITLES).filter(([name]) => data.lengths?.[name]?.bins?.length);
  if (!present.length) return null;
  const names = Object.keys(data.lengths[present[0][0]].quantiles ?? {});
  return section("lengths", "Lengths in ids",
    table(["", "answers", "mean", ...names], present.map(([name, title]) => {
      const {n, mean, quantiles} = data.lengths[name];
      return [title, count(n), figure(Math.round(mean)), ...names.map((q) => count(quantiles[q]))];
    }), {caption: "Lengths"}),
    el("div", {class: "plots"}, present.map(([name, title]) =>
      histogram(title, data.lengths[name].bins, Object.entries(data.lengths[name].quantiles ?? {}), "ids"))));
}

function finish(data) {
  const all = added(Object.fromEntries((data.finish ?? []).map(({finish_reason: name, rows}) => [name, rows])));
  const cut = data.cut_in_reasoning;
  const again = Object.entries(data.attempts ?? {});
  return section("finish", "How answers ended",
    table(["finish reason", "rows", "share", ""], (data.finish ?? []).map(({finish_reason: name, rows}) =>
      [code(name), count(rows), part(rows, all), bar(rows, all)]), {caption: "Finish reasons"}),
    cut && el("p", {}, `Cut inside the reasoning: ${plural(cut.rows, "row")}, ${share(cut.share)}.`),
    again.length > 0 && el("p", {}, "Good rows by attempt (asked again, or on): ",
      again.map(([attempt, rows]) => `${attempt}: ${count(rows)}`).join(", "), "."));
}

function throughput(data) {
  const points = data.course?.points;
  if (!points?.length && !data.arrivals?.length) return null;
  const numbers = points?.length && table(["second", "ids/s", "rows/s", "in flight", "limit"], points.map((row) => row.map(figure)));
  return section("throughput", "Throughput",
    points?.length > 1 && el("div", {class: "plots"},
      course("Output ids a second", points, [{name: "ids a second", key: 1}], "ids/s", numbers),
      course("Requests in flight, and their limit (dashed)", points, [{name: "in flight", key: 3}, {name: "limit", key: 4, dashed: true}], "requests", null)),
    data.arrivals?.length > 0 && arrivals(data.arrivals),
    !points?.length && el("p", {class: "note"}, "No run recorded its course for this manifest; the rows' own times are shown."));
}

function drift(data) {
  const found = data.drift;
  if (!found) return section("drift", "Drift", el("p", {}, "There is no earlier manifest to compare with."));
  const warnings = found.warnings ?? [];
  return section("drift", "Drift",
    el("p", {}, `Compared with manifest ${found.compared_with}: `, warnings.length ? plural(warnings.length, "warning") : "no warning", "."),
    warnings.length > 0 && el("ul", {class: "warnings"}, warnings.map((line) => el("li", {}, line))),
    (found.notes ?? []).map((line) => el("p", {class: "note"}, line)),
    folded("Side by side", (found.tables ?? []).map(({name, lines}) =>
      table([name, "now", "before", "change"], lines.map((cells) => cells.map((cell, at) => (at ? figure(cell) : cell))), {caption: name}))));
}

function coverage(data) {
  const found = data.coverage;
  if (!found?.curve?.length) return null;
  return section("coverage", "Supervised ids",
    el("p", {}, `${count(found.distinct)} different ids are supervised (${found.mask}), ${count(found.supervised)} times in all. `,
      "A reduced draft vocabulary of the most frequent ones covers:"),
    table(["draft vocabulary", "covered", "not covered"], found.at.map(([k, s]) => [count(k), share(s), share(1 - s)]), {caption: "Coverage"}),
    coverageCurve(found.curve, found.at));
}

function roundTrip(data) {
  const found = data.round_trip;
  if (!found) return null;
  return section("round-trip", "Round trip through text",
    found.unavailable !== undefined ? el("p", {}, `Not measured: ${found.unavailable}`)
      : [el("p", {class: "figure-line"}, el("strong", {}, share(found.share)), ` (${count(found.changed)} of ${plural(found.rows, "sampled row")}`,
        found.interval ? `; 95 % interval ${share(found.interval[0])} to ${share(found.interval[1])}` : "", ")"), el("p", {}, SPARED)]);
}
