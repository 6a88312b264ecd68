// The map of trips, and the matrix that stands in its place where areas have no shapes.

import { MOST_IN_MATRIX, counted, data, fill, interval, make, number, peak } from "./base.js";
import { draw, mapOf, matrixOf, shadesNow, widthOf } from "./charts.js";
import { FROM, TO, areaAt, isClear, isWithin, levelsOfPairs, rowsFrom } from "./areas.js";
import { actions, hasMap, middle, trips } from "./state.js";

const ARCS = 12;
const MOST_NAMED = 3; // areas without a shape

/** Draw the map: around the chosen area, or of totals where none is chosen. */
export function showMap() {
  const { direction, level } = trips;
  const here = middle();
  const end = here ? 1 - direction : direction;
  const depth = here ? level?.at[end] : shapedDepth(end, level);
  const of = depth ? data.axes[end].levels[depth - 1] : null;
  const box = document.getElementById("map-part");
  box.hidden = !of?.shape;
  if (box.hidden) return;
  const shapes = data.shapes[of.shape];
  const places = of.codes.map((_, at) => ({ at, count: 0, kind: "none", label: areaAt(end, depth, at).title }));
  const arcs = here ? around(here, places, end) : largestArcs(level, end, depth);
  if (!here) totalsOn(places, end, depth);
  const title = here
    ? `${direction === FROM ? "Where trips from" : "Where trips to"} ${here.title} ${direction === FROM ? "end" : "begin"}`
    : `Where trips ${direction === FROM ? "begin" : "end"}`;
  document.getElementById("map-title").textContent = `${title}, by ${of.called}`;
  const far = here === trips.here ? trips.other : trips.here;
  if (far && here !== far && far.depth === depth && far.at[end] !== null) places[far.at[end]].isOther = true;
  const lacking = shapes.d.flatMap((path, at) => (path === null ? [areaAt(end, depth, at).title] : []));
  showKeys(places, arcs, lacking);
  const view = { width: widthOf("map"), zoom: trips.zoom, ...middleOf(shapes, here, end) };
  draw("map", mapOf(shapes, places, arcs, view), `Map. ${title}. The list has these numbers${trips.within ? "" : ", but for trips within one area"}.`, (place) =>
    actions.point(areaAt(end, depth, place.at)),
  );
}

/** Return which areas are not on the map, in words: few by their titles. */
function withoutShape(titles) {
  if (!titles.length) return "";
  if (titles.length > MOST_NAMED) return `${number(titles.length)} areas have no shape: find them in the list`;
  return `without a shape, so only in the list: ${titles.join("; ")}`;
}

/** Say what shades mean. */
function showKeys(places, arcs, lacking) {
  const clear = places.filter((place) => place.kind === "signal").map((place) => place.count);
  const here = middle();
  document.getElementById("here-key").hidden = !here;
  const from = trips.direction === FROM ? "arcs lead to the most from here" : "arcs come from the most to here";
  fill("arcs-key", arcs.length ? (here ? from : "arcs: the largest flows") : "");
  fill("no-shape", withoutShape(lacking));
  fill("click-key", here ? "click another area to see the pair, or a chosen one to deselect it" : "click an area to choose it");
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  bar.style.background = `linear-gradient(90deg, ${shadesNow().join(", ")})`;
  fill(
    "shades",
    ...(clear.length ? [bar, ` up to ${counted(peak(clear, 0))}`] : ["no count stands out from the noise"]),
  );
}

/** Mark where trips from here, or to here, have their other ends; return arcs to the most of them. */
function around(here, places, end) {
  const { direction, level } = trips;
  const rows = rowsFrom(level, direction, here.at[direction]);
  const ends = end === TO ? level.to : level.from;
  for (const row of rows) {
    const at = ends[row];
    const clear = isClear(level, row);
    places[at].count = level.count[row];
    places[at].kind = clear ? "signal" : "noise";
    const range = interval(level.low?.[row], level.high?.[row]);
    places[at].label += `: ${counted(level.count[row])}${range && ` (${range})`}${clear ? "" : ", may be noise"}`;
  }
  const own = here.at[end];
  if (level.at[FROM] !== level.at[TO] || own === null) return [];
  places[own].kind = "here";
  const clear = rows.filter((row) => !isWithin(level, row) && isClear(level, row));
  return clear.slice(0, ARCS).map((row) => {
    const at = ends[row];
    return { from: direction === FROM ? own : at, to: direction === FROM ? at : own, count: level.count[row] };
  });
}

/** Return arcs for the largest flows of all between areas of the map; none where the list is of other areas. */
function largestArcs(level, end, depth) {
  if (!level?.from || !level.to || level.at.some((own) => own !== depth)) return [];
  const place = (side, at) => areaAt(side, depth, at).at[end];
  const clear = level.count.map((_, row) => row).filter((row) => !isWithin(level, row) && isClear(level, row));
  const arcs = clear
    .toSorted((one, two) => level.count[two] - level.count[one])
    .slice(0, ARCS)
    .map((row) => ({ from: place(FROM, level.from[row]), to: place(TO, level.to[row]), count: level.count[row] }));
  return arcs.filter((arc) => arc.from !== null && arc.to !== null);
}

/** Mark the totals of areas. */
function totalsOn(places, end, depth) {
  const totals = data.totals.find((one) => one.axis === end && one.level === depth);
  for (const place of places) {
    const [count, low] = [totals.count[place.at], totals.low?.[place.at] ?? null];
    place.count = count;
    place.kind = count === 0 ? "none" : count > 0 && (low === null || low > 0) ? "signal" : "noise";
    place.label += `: ${counted(count)} ${end === FROM ? "from" : "to"} here`;
  }
}

/** Return the level of an end that the map without a chosen area shows: that of the list if it has shapes, else the finest that has. */
function shapedDepth(end, level) {
  const shaped = data.totals.filter((one) => one.axis === end && data.axes[end].levels[one.level - 1].shape).map((one) => one.level);
  if (shaped.includes(level?.at[end])) return level.at[end];
  return shaped.length ? Math.max(...shaped) : 0;
}

/** Return the middle of the map: the chosen area, if the map is enlarged. */
function middleOf(shapes, here, end) {
  const whole = { x: shapes.width / 2, y: shapes.height / 2 };
  if (!here || trips.zoom === 1) return whole;
  const side = here.at[end] === null ? 1 - end : end;
  const of = data.axes[side].levels[here.depth - 1];
  const shape = of.shape ? data.shapes[of.shape] : null;
  const own = here.at[side];
  return shape && shape.x[own] !== null ? { x: shape.x[own], y: shape.y[own] } : whole;
}

/** Draw a matrix of pairs, of the level of the list or, where that has too many areas, the coarsest, where there is no map. */
export function showMatrix() {
  const fits = (one) => one && Math.max(...one.at.map((depth, end) => data.axes[end].levels[depth - 1].codes.length)) <= MOST_IN_MATRIX;
  const level = [trips.level, ...levelsOfPairs()].find((one) => fits(one));
  const box = document.getElementById("matrix-part");
  box.hidden = hasMap || !level;
  if (box.hidden) return;
  const names = level.at.map((depth, end) => data.axes[end].levels[depth - 1].codes.map((_, at) => areaAt(end, depth, at).title));
  const cells = level.count.map((count, row) => ({
    at: row,
    row: names[FROM][level.from[row]],
    column: names[TO][level.to[row]],
    count,
    kind: isClear(level, row) ? "signal" : "noise",
    label: `${names[FROM][level.from[row]]} to ${names[TO][level.to[row]]}: ${counted(count)}${isClear(level, row) ? "" : ", which may be noise"}`,
  }));
  const titles = data.axes.map((axis) => axis.name);
  draw("matrix", matrixOf(cells, names[FROM], names[TO], titles, widthOf("matrix")), "Matrix of counts. The list has the same numbers.", (cell) =>
    actions.choosePair(areaAt(FROM, level.at[FROM], level.from[cell.at]), areaAt(TO, level.at[TO], level.to[cell.at]), true),
  );
}

/** Draw again what depends on the width of the window or on the scheme of colours. */
export function redrawTrips() {
  showMap();
  showMatrix();
}
