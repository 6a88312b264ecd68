// Trips: choose an area, and see how many records go from it and to it.

import { MOST_IN_MATRIX, address, announce, called, card, counted, data, fill, make, number, percent, release, share, tableOf } from "./base.js";
import { combobox } from "./combobox.js";
import { dark, draw, mapOf, matrixOf, widthOf } from "./charts.js";

const FROM = 0;
const TO = 1;
const FEW = 15; // rows of a list before more are asked for
const ARCS = 12;

const trips = {
  here: null, // the area that is chosen, an element of `areas`
  other: null, // the other end, if one is chosen
  direction: FROM, // whether the map and the list are about trips from here, or to here
  level: null, // the level that the list shows
  within: false, // whether trips that stay in the area are listed
  shown: FEW,
  zoom: 1,
};

const areas = data.kind === "trips" ? areasOfBothEnds() : [];

/** Return all areas, coarse to fine, each once: `at` has its number on each axis, or null where the axis has no such area. */
function areasOfBothEnds() {
  const found = new Map();
  data.axes.forEach((axis, end) => {
    let paths = [];
    axis.levels.forEach((of, above) => {
      paths = of.codes.map((code, at) => (above ? `${paths[of.parent[at]]}\u0000${code}` : code));
      paths.forEach((path, at) => {
        const key = `${of.name}\u0000${path}`;
        const code = of.codes[at];
        const label = (of.names && of.names[at]) || code;
        if (!found.has(key)) {
          found.set(key, { key, at: [null, null], depth: above + 1, levelName: of.name, label, code });
        }
        found.get(key).at[end] = at;
      });
    });
  });
  return [...found.values()].toSorted((one, other) => one.depth - other.depth);
}

const byPlace = new Map(areas.flatMap((area) => area.at.map((at, end) => [`${end}:${area.depth}:${at}`, area])));

/** Return an area by its number at a level of an end. */
function areaAt(end, depth, at) {
  return byPlace.get(`${end}:${depth}:${at}`);
}

/** Return what an area is called, with its code. */
function title(area) {
  return area.label === area.code ? area.code : `${area.label} (${area.code})`;
}

/** Return the levels that list the other ends of trips that begin (or end) in areas as coarse as this one. */
function levelsFor(area, direction) {
  return data.levels.filter((level) => level.at[direction] === area.depth && level.at[1 - direction] > 0);
}

function levelTitle(level, direction) {
  return data.axes[1 - direction].levels[level.at[1 - direction] - 1].name;
}

/** Return the rows of a level that begin (or end) in an area, the largest first: their places in its columns. */
function rowsFrom(level, direction, at) {
  level.rowsOf ??= [new Map(), new Map()];
  const known = level.rowsOf[direction];
  if (!known.size) {
    const ends = direction === FROM ? level.from : level.to;
    ends.forEach((end, row) => {
      if (!known.has(end)) known.set(end, []);
      known.get(end).push(row);
    });
    for (const rows of known.values()) rows.sort((one, two) => level.count[two] - level.count[one]);
  }
  return known.get(at) ?? [];
}

/** Return the answer about a pair of areas, as `trellis query` gives it; null where the page does not hold it. */
function answerOf(from, to) {
  if (from.at[FROM] === null || to.at[TO] === null) return null;
  const level = data.levels.find((one) => one.at[FROM] === from.depth && one.at[TO] === to.depth);
  if (!level) return null;
  const row = rowsFrom(level, FROM, from.at[FROM]).find((one) => level.to[one] === to.at[TO]);
  if (row === undefined) {
    return {
      count: 0,
      low: level.absent_high === null ? null : 0,
      high: level.absent_high,
      signal: false,
      note: "The release has no row for this pair, which stands for a count of 0.",
    };
  }
  const asked = level.asked_low[row] !== null;
  return {
    count: level.count[row],
    low: asked ? level.asked_low[row] : level.low[row],
    high: asked ? level.asked_high[row] : level.high[row],
    signal: level.signal ? Boolean(level.signal[row]) : true,
    note: asked ? "" : "The interval is the one of the table: it holds for rows on average.",
  };
}

/** Return the answer about all trips from an area, or to it; null where the page does not hold it. */
function totalOf(area, direction) {
  const totals = data.totals.find((one) => one.axis === direction && one.level === area.depth);
  const at = area.at[direction];
  if (!totals || at === null || totals.count[at] === null) return null;
  return { count: totals.count[at], low: totals.low[at], high: totals.high[at], signal: true };
}

function isWithin(level, row) {
  const [coarse, fine] = [Math.min(...level.at), Math.max(...level.at)];
  const ends = [level.from[row], level.to[row]].map((at, end) => areaAt(end, level.at[end], at));
  const finer = ends[level.at[FROM] === fine ? FROM : TO];
  const coarser = ends[level.at[FROM] === fine ? TO : FROM];
  return coarse === fine ? finer === coarser : finer.key.includes(`\u0000${coarser.key.split("\u0000").slice(1).join("\u0000")}\u0000`);
}

/** Return a button that chooses an area. */
function link(area, chosen) {
  return make("button", { type: "button", class: "link", onclick: () => chosen(area) }, title(area));
}

/** Show the whole release: its total, and the largest flows. */
function showEverything() {
  const { count, low, high } = release.total;
  const level = coarsestPairs();
  fill(
    "answer",
    card("Everything", "in all", { count, low, high }),
    make("p", {}, "Choose an area by its name or code, in the map or in a list, to see what goes from there and to there."),
  );
  fill("list", ...(level ? largestFlows(level) : []));
}

/** Return the finest level that refines both ends alike, of which most rows stand out. */
function coarsestPairs() {
  const alike = data.levels.filter((level) => level.at[FROM] === level.at[TO] && level.at[FROM] > 0 && level.count.length);
  const clear = alike.filter((level) => !level.noise_rows || level.noise_rows.at_most <= 0.5);
  return clear.at(-1) ?? alike[0] ?? data.levels.filter((level) => level.at.every(Boolean)).at(0);
}

function largestFlows(level) {
  const order = level.count
    .map((_, row) => row)
    .filter((row) => trips.within || !isWithin(level, row))
    .toSorted((one, two) => level.count[two] - level.count[one])
    .slice(0, trips.shown);
  const rows = order.map((row) => {
    const [from, to] = [areaAt(FROM, level.at[FROM], level.from[row]), areaAt(TO, level.at[TO], level.to[row])];
    return [link(from, choose), link(to, (area) => choosePair(from, area)), ...numbersOf(level, row)];
  });
  const names = level.at.map((depth, end) => data.axes[end].levels[depth - 1].name);
  const inside = trips.within ? "" : ", without those that stay in one area";
  return [
    withinBox(),
    tableOf(`The largest flows, ${names[0]} to ${names[1]}${inside}`, ["from", "to", ...headings(level)], rows),
    moreButton(order.length < level.count.length),
  ];
}

function headings(level) {
  const promise = level.promise === "rows" ? `${percent} of rows` : percent;
  return [release.many, ...(level.low ? [`low (${promise})`, `high (${promise})`] : []), "stands out"];
}

function numbersOf(level, row) {
  const ends = level.low ? [level.low[row] ?? "–", level.high[row] ?? "–"] : [];
  return [level.count[row], ...ends, !level.signal || level.signal[row] ? "yes" : "may be noise"];
}

function withinBox() {
  const box = make("input", {
    type: "checkbox",
    id: "within",
    checked: trips.within,
    onchange: (event) => {
      trips.within = event.target.checked;
      show();
      document.getElementById("within").focus();
    },
  });
  return make("p", {}, make("label", {}, box, " with those that stay within one area"));
}

function moreButton(are) {
  const more = () => {
    trips.shown *= 4;
    show();
  };
  return are ? make("button", { type: "button", class: "more", onclick: more }, "Show more") : null;
}

/** Show what goes from the chosen area and to it. */
function showArea(here) {
  const out = totalOf(here, FROM);
  const into = totalOf(here, TO);
  const stays = answerOf(here, here);
  const cards = [
    out && card(`From ${here.label}`, `from ${here.label} to anywhere`, out),
    into && card(`To ${here.label}`, `to ${here.label} from anywhere`, into),
    stays && card(`Within ${here.label}`, `from ${here.label} to ${here.label} itself`, stays),
  ];
  fill("answer", ...cards.filter(Boolean));
  announce(out ? `${here.label}: ${counted(out.count)} from here${into ? `, ${counted(into.count)} to here` : ""}.` : here.label);
  fill("list", ...listOf(here));
}

/** Show how many go from one area to another, and back. */
function showPair(from, to) {
  const answers = [
    [from, to],
    [to, from],
  ].map(([one, two]) => [one, two, answerOf(one, two)]);
  const cards = answers.map(([one, two, found]) =>
    found
      ? card(`From ${one.label} to ${two.label}`, `from ${one.label} to ${two.label}`, found)
      : make(
          "article",
          { class: "card" },
          make("h3", {}, `From ${one.label} to ${two.label}`),
          make("p", {}, "This page holds no level with both of these areas. The whole release may: see the report."),
        ),
  );
  fill("answer", ...cards);
  const found = answers[0][2];
  announce(found ? `From ${from.label} to ${to.label}: ${counted(found.count)}.` : "This page holds no such pair.");
  fill("list", ...listOf(from));
}

/** Return the list of the other ends of trips from here, or to here, with what chooses direction and level. */
function listOf(here) {
  const directions = [FROM, TO].filter((direction) => here.at[direction] !== null && levelsFor(here, direction).length);
  if (!directions.length) return [make("p", {}, "This page holds no pairs of areas like this one. The finer tables may.")];
  if (!directions.includes(trips.direction)) [trips.direction] = directions;
  const direction = trips.direction;
  const levels = levelsFor(here, direction);
  if (!levels.includes(trips.level)) {
    trips.level = levels.find((level) => level.at[0] === level.at[1]) ?? levels[0];
  }
  const level = trips.level;
  const all = rowsFrom(level, direction, here.at[direction]);
  const listed = all.filter((row) => trips.within || !isWithin(level, row));
  const choice = (of) =>
    make(
      "label",
      {},
      make("input", {
        type: "radio",
        name: "direction",
        value: of,
        checked: of === direction,
        onchange: () => {
          trips.direction = of;
          show();
          document.querySelector(`[name=direction][value="${of}"]`).focus();
        },
      }),
      of === FROM ? " from here" : " to here",
    );
  const select = make(
    "select",
    {
      id: "level",
      onchange: (event) => {
        trips.level = levels[event.target.selectedIndex];
        show();
        document.getElementById("level").focus();
      },
    },
    ...levels.map((one) => make("option", { selected: one === level }, levelTitle(one, direction))),
  );
  const rows = listed.slice(0, trips.shown).map((row) => {
    const other = areaAt(1 - direction, level.at[1 - direction], (direction === FROM ? level.to : level.from)[row]);
    const pair = () => (direction === FROM ? choosePair(here, other) : choosePair(other, here));
    return [link(other, pair), ...numbersOf(level, row)];
  });
  const caption = direction === FROM ? `Where trips from ${here.label} end` : `Where trips to ${here.label} begin`;
  return [
    make(
      "fieldset",
      { class: "switches" },
      make("legend", {}, "What the list and the map show"),
      ...directions.map(choice),
      make("label", {}, "by ", select),
    ),
    withinBox(),
    rows.length
      ? tableOf(caption, [levelTitle(level, direction), ...headings(level)], rows)
      : make("p", {}, `${caption}: the release has no count above 0.`),
    moreButton(listed.length > trips.shown),
    noiseNote(level),
  ];
}

/** Return how much of a level's rows is noise, in words. */
function noiseNote(level) {
  const noise = level.noise_rows;
  if (!noise) return null;
  if (noise.at_most === 0) return make("p", { class: "note" }, "No row at this level counts what is truly 0.");
  const some = noise.estimate === null ? "" : `About ${share(noise.estimate)}, and `;
  const at = `${some}${some ? "at" : "At"} most ${share(noise.at_most)} of all rows at this level count what is truly 0.`;
  const marked = level.signal
    ? ` Of the rows that stand out, at most ${share(release.signal_rate)} are expected to; of the others, more.`
    : "";
  return make("p", { class: "note" }, at + marked);
}

/** Draw the map: around the chosen area, or of totals where none is chosen. */
export function showMap() {
  const direction = trips.direction;
  const here = trips.here;
  const level = here ? trips.level : null;
  const end = here ? 1 - direction : FROM;
  const depth = here ? level?.at[end] : shapedTotals(end);
  const of = depth ? data.axes[end].levels[depth - 1] : null;
  const box = document.getElementById("map-part");
  box.hidden = !of?.shape;
  if (box.hidden) return;
  const shapes = data.shapes[of.shape];
  const places = of.codes.map((_, at) => ({ at, count: 0, kind: "none", label: called(data.axes[end], depth, at) }));
  const arcs = [];
  if (here) {
    const rows = rowsFrom(level, direction, here.at[direction]);
    for (const row of rows) {
      const at = (end === TO ? level.to : level.from)[row];
      const clear = !level.signal || level.signal[row];
      places[at].count = level.count[row];
      places[at].kind = clear ? "signal" : "noise";
      places[at].label += `: ${counted(level.count[row])}${clear ? "" : ", which may be noise"}`;
    }
    const own = areaAt(direction, here.depth, here.at[direction])?.at[end];
    const same = level.at[0] === level.at[1] && own !== null && own !== undefined;
    if (same) {
      places[own].kind = "here";
      const largest = rows.filter((row) => !isWithin(level, row)).slice(0, ARCS);
      for (const row of largest) {
        if (level.signal && !level.signal[row]) continue;
        const at = (end === TO ? level.to : level.from)[row];
        arcs.push({ from: direction === FROM ? own : at, to: direction === FROM ? at : own, count: level.count[row] });
      }
    }
  } else {
    const totals = data.totals.find((one) => one.axis === end && one.level === depth);
    places.forEach((place) => {
      const [count, low] = [totals.count[place.at], totals.low[place.at]];
      if (count === null) return;
      place.count = count;
      place.kind = count === 0 ? "none" : low === null || low > 0 ? "signal" : "noise";
      place.label += `: ${counted(count)} from here`;
    });
  }
  const said = here ? `${direction === FROM ? "Where trips from" : "Where trips to"} ${here.label} ${direction === FROM ? "end" : "begin"}` : "Where trips begin";
  document.getElementById("map-title").textContent = `${said}, by ${of.name}`;
  const clear = places.filter((place) => place.kind === "signal").map((place) => place.count);
  document.getElementById("shades").textContent = clear.length
    ? `${dark.matches ? "from dark to light" : "from light to dark"}: ${number(Math.min(...clear))} to ${counted(Math.max(...clear))}`
    : "no count stands out from the noise";
  const middle = middleOf(shapes, here, end);
  draw("map", mapOf(shapes, places, arcs, { width: widthOf("map"), zoom: trips.zoom, ...middle }), `Map. ${said}. The list has the same numbers.`, (place) =>
    choose(areaAt(end, depth, place.at)),
  );
}

/** Return the finest level of an end that has shapes and totals. */
function shapedTotals(end) {
  const shaped = data.totals.filter((one) => one.axis === end && data.axes[end].levels[one.level - 1].shape);
  return shaped.length ? Math.max(...shaped.map((one) => one.level)) : 0;
}

/** Return the middle of the map: the chosen area, if the map is enlarged. */
function middleOf(shapes, here, end) {
  const whole = { x: shapes.width / 2, y: shapes.height / 2 };
  if (!here || trips.zoom === 1) return whole;
  const own = here.at[end] ?? here.at[1 - end];
  const of = data.axes[end].levels[here.depth - 1];
  const shape = of?.shape ? data.shapes[of.shape] : null;
  return shape && shape.x[own] !== null ? { x: shape.x[own], y: shape.y[own] } : whole;
}

/** Draw a matrix of the coarsest pairs, where there is no map. */
export function showMatrix() {
  const hasMap = Object.keys(data.shapes ?? {}).length > 0;
  const level = data.levels.find((one) => one.at.every(Boolean) && one.count.length);
  const sides = level?.at.map((depth, end) => data.axes[end].levels[depth - 1].codes.length) ?? [];
  const box = document.getElementById("matrix-part");
  box.hidden = hasMap || !level || Math.max(...sides) > MOST_IN_MATRIX;
  if (box.hidden) return;
  const [from, to] = data.axes;
  const names = level.at.map((depth, end) => data.axes[end].levels[depth - 1].codes.map((_, at) => called(data.axes[end], depth, at)));
  const cells = level.count.map((count, row) => ({
    at: row,
    row: names[0][level.from[row]],
    column: names[1][level.to[row]],
    count,
    kind: !level.signal || level.signal[row] ? "signal" : "noise",
    label: `${names[0][level.from[row]]} to ${names[1][level.to[row]]}: ${counted(count)}`,
  }));
  draw("matrix", matrixOf(cells, names[0], names[1], [from.name, to.name], widthOf("matrix")), "Matrix of counts. The list has the same numbers.", (cell) =>
    choosePair(areaAt(FROM, level.at[FROM], level.from[cell.at]), areaAt(TO, level.at[TO], level.to[cell.at])),
  );
}

/** Show the views that have the chosen area, or all of their rows. */
function showViews() {
  const box = document.getElementById("views-part");
  box.hidden = !data.views?.length;
  if (box.hidden) return;
  const wanted = trips.here ? new Set([trips.here.code]) : null;
  const tables = data.views.map((view) => {
    const rows = view.count.map((_, row) => row).filter((row) => !wanted || view.columns.some((column) => wanted.has(column.values[row])));
    if (!rows.length) return null;
    const cells = rows.slice(0, 200).map((row) => [
      ...view.columns.map((column) => (column.names?.[row] ? `${column.names[row]} (${column.values[row]})` : column.values[row])),
      view.count[row],
      view.low[row] ?? "–",
      view.high[row] ?? "–",
    ]);
    const columns = [...view.columns.map((column) => column.title), release.many, `low (${percent})`, `high (${percent})`];
    const more = rows.length > 200 ? ` (the first 200 of ${number(rows.length)} rows)` : "";
    return make("details", { open: data.views.length === 1 }, make("summary", {}, `${view.name}${more}`), tableOf(view.name, columns, cells));
  });
  fill("views", ...tables);
}

/** Choose an area; null for everything. */
function choose(area) {
  Object.assign(trips, { here: area, other: null, shown: FEW });
  document.getElementById("here").value = area ? area.label : "";
  document.getElementById("other").value = "";
  show();
}

/** Choose where trips begin and where they end. */
function choosePair(from, to) {
  Object.assign(trips, { here: from, other: to, shown: FEW });
  document.getElementById("here").value = from.label;
  document.getElementById("other").value = to ? to.label : "";
  show();
}

/** Show the page of the areas that are chosen. */
function show() {
  const { here, other } = trips;
  if (!here) showEverything();
  else if (other) showPair(here, other);
  else showArea(here);
  document.getElementById("clear").hidden = !here;
  address.write({ area: here?.key.replaceAll("\u0000", "/"), to: other?.key.replaceAll("\u0000", "/"), by: here ? trips.direction || null : null });
  showMap();
  showMatrix();
  showViews();
}

/** Begin with what the address of the page asks for. */
export function beginTrips() {
  document.getElementById("choose-trips").hidden = false;
  const choices = () => areas.map((area) => ({ label: area.label, detail: `${area.levelName} ${area.label === area.code ? "" : area.code}`, value: area }));
  combobox(document.getElementById("here"), choices, choose);
  combobox(document.getElementById("other"), choices, (area) => {
    if (trips.here) choosePair(trips.here, area);
    else choose(area);
  });
  document.getElementById("clear").addEventListener("click", () => {
    choose(null);
    document.getElementById("here").focus();
  });
  for (const [id, factor] of [
    ["nearer", 1.6],
    ["farther", 1 / 1.6],
    ["whole", 0],
  ]) {
    document.getElementById(id).addEventListener("click", () => {
      trips.zoom = factor ? Math.min(40, Math.max(1, trips.zoom * factor)) : 1;
      showMap();
    });
  }
  const asked = address.read();
  const find = (key) => areas.find((area) => area.key.replaceAll("\u0000", "/") === key) ?? null;
  trips.direction = asked.by === "1" ? TO : FROM;
  const [here, other] = [find(asked.area), find(asked.to)];
  if (here && other) choosePair(here, other);
  else choose(here);
}
