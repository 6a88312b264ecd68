// The map of trips, and the matrix that stands in its place where areas have no shapes.

import { MOST_IN_MATRIX, counted, data, fill, interval, make, number, peak } from "./base.js";
import { draw, mapOf, matrixOf, shadesNow, widthOf } from "./charts.js";
import { FROM, TO, areaAt, axisOf, isWithin, pairsListed } from "./areas.js";
import { isClear, kindOf, rowsBy, within } from "./tables.js";
import { actions, chosen, hasMap, middleEnd, onlyTitle, setsFor, titleOf } from "./state.js";
import { flows, otherEnds } from "./lists.js";

const ARCS = 12;
const MOST_NAMED = 3; // areas without a shape

/** Draw the map: around the chosen areas, or of totals where none is chosen. */
export function showMap() {
  const { direction, pairs } = chosen;
  const own = middleEnd();
  const here = own === null ? [] : chosen.ends[own];
  const end = here.length ? 1 - direction : direction;
  const depth = here.length ? pairs?.at[end] : shapedDepth(end, pairs);
  const of = depth ? data.axes[axisOf(end)].levels[depth - 1] : null;
  const box = document.getElementById("map-part");
  box.hidden = !of?.shape;
  if (box.hidden) return;
  const shapes = data.shapes[of.shape];
  const places = of.codes.map((_, at) => ({ at, count: 0, kind: "none", label: areaAt(end, depth, at).title }));
  const arcs = here.length ? around(here, places, end) : largestArcs(pairs, end, depth);
  if (!here.length) totalsOn(places, end, depth);
  const [from, to, sides] = direction === FROM ? ["Where trips from", "end", "begin"] : ["Where trips to", "begin", "end"];
  const title = `${here.length ? `${from} ${titleOf(here)} ${to}` : `Where trips ${sides}`}${onlyTitle()}`;
  document.getElementById("map-title").textContent = `${title}, by ${of.called}`;
  for (const at of here === chosen.ends[end] ? [] : placesOf(chosen.ends[end], end, depth)) places[at].isOther = true;
  const lacking = shapes.d.flatMap((path, at) => (path === null ? [areaAt(end, depth, at).title] : []));
  showKeys(places, arcs, lacking);
  const view = { width: widthOf("map"), zoom: chosen.zoom, ...middleOf(shapes, here, end) };
  draw("map", mapOf(shapes, places, arcs, view), `Map. ${title}. The list has these numbers${chosen.within ? "" : ", but for trips within one area"}.`, (place) =>
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
  const isChosen = middleEnd() !== null;
  document.getElementById("here-key").hidden = !isChosen;
  const from = chosen.direction === FROM ? "arcs lead to the most from here" : "arcs come from the most to here";
  fill("arcs-key", arcs.length ? (isChosen ? from : "arcs: the largest flows") : "");
  fill("no-shape", withoutShape(lacking));
  const click = isChosen ? "click another area to see the pair, or a chosen one to deselect it" : "click an area to choose it";
  fill("click-key", chosen.several ? "click areas to choose several of them, or a chosen one to deselect it" : click);
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  bar.style.background = `linear-gradient(90deg, ${shadesNow().join(", ")})`;
  fill(
    "shades",
    ...(clear.length ? [bar, ` up to ${counted(peak(clear, 0))}`] : ["no count stands out from the noise"]),
  );
}

/** Return the areas of a level of an end that chosen areas are, or that lie in them. */
function placesOf(chosenAreas, end, depth) {
  return chosenAreas.flatMap((area) => (area.at[end] === null || area.depth > depth ? [] : within(axisOf(end), area.depth, [area.at[end]], depth)));
}

/** Mark where trips from here, or to here, have their other ends; return arcs to the most of them. */
function around(here, places, end) {
  const { direction, pairs } = chosen;
  const rows = (otherEnds(pairs, direction, here) ?? []).toSorted((one, two) => two.count - one.count);
  for (const row of rows) {
    const place = places[row.areas[0]];
    const range = interval(row.low, row.high);
    Object.assign(place, { count: row.count, kind: isClear(row) ? "signal" : "noise" });
    place.label += `: ${counted(row.count)}${range && ` (${range})`}${isClear(row) ? "" : ", may be noise"}`;
  }
  const own = placesOf(here, end, pairs.at[end]);
  for (const at of own) places[at].kind = "here";
  if (own.length !== 1 || here.length !== 1 || here[0].depth !== pairs.at[end] || pairs.at[FROM] !== pairs.at[TO]) return [];
  const [at] = own;
  const clear = rows.filter((row) => isClear(row) && !here.some((area) => isWithin(...(direction === FROM ? [area, row.other] : [row.other, area]))));
  return clear.slice(0, ARCS).map((row) => ({ from: direction === FROM ? at : row.areas[0], to: direction === FROM ? row.areas[0] : at, count: row.count }));
}

/** Return arcs for the largest flows of all between areas of the map; none where the list is of other areas. */
function largestArcs(pairs, end, depth) {
  if (!pairs || pairs.at.some((own) => own !== depth)) return [];
  const clear = (flows(pairs) ?? []).filter((row) => !isWithin(...row.ends) && isClear(row));
  const arcs = clear
    .toSorted((one, two) => two.count - one.count)
    .slice(0, ARCS)
    .map(({ ends: [from, to], count }) => ({ from: from.at[end], to: to.at[end], count }));
  return arcs.filter((arc) => arc.from !== null && arc.to !== null);
}

/** Mark the totals of areas. */
function totalsOn(places, end, depth) {
  for (const row of rowsBy([[axisOf(end), depth]], setsFor([], []), true) ?? []) {
    const place = places[row.areas[0]];
    Object.assign(place, { count: row.count, kind: kindOf(row) });
    place.label += `: ${counted(row.count)} ${end === FROM ? "from" : "to"} here`;
  }
}

/** Return the level of an end that the map without a chosen area shows: that of the list if it has shapes, else the finest that has. */
function shapedDepth(end, pairs) {
  const shaped = [...data.axes[axisOf(end)].levels.keys()].filter((place) => data.axes[axisOf(end)].levels[place].shape).map((place) => place + 1);
  if (shaped.includes(pairs?.at[end])) return pairs.at[end];
  return shaped.length ? Math.max(...shaped) : 0;
}

/** Return the middle of the map: the chosen area, if the map is enlarged. */
function middleOf(shapes, here, end) {
  const whole = { x: shapes.width / 2, y: shapes.height / 2 };
  if (!here.length || chosen.zoom === 1) return whole;
  const side = here[0].at[end] === null ? 1 - end : end;
  const of = data.axes[axisOf(side)].levels[here[0].depth - 1];
  const shape = of.shape ? data.shapes[of.shape] : null;
  const own = here[0].at[side];
  return shape && shape.x[own] !== null ? { x: shape.x[own], y: shape.y[own] } : whole;
}

/** Draw a matrix of pairs, of the level of the list or, where that has too many areas, the coarsest, where there is no map. */
export function showMatrix() {
  const fits = (one) => one && Math.max(...one.at.map((depth, end) => data.axes[axisOf(end)].levels[depth - 1].codes.length)) <= MOST_IN_MATRIX;
  const pairs = [chosen.pairs, ...pairsListed].find((one) => fits(one));
  const box = document.getElementById("matrix-part");
  const rows = !hasMap && pairs ? flows(pairs) : null;
  box.hidden = !rows;
  if (box.hidden) return;
  const names = [FROM, TO].map((end) => data.axes[axisOf(end)].levels[pairs.at[end] - 1].codes.map((_, at) => areaAt(end, pairs.at[end], at).title));
  const cells = rows.map((row, at) => {
    const [from, to] = row.ends.map((area) => area.title);
    const label = `${from} to ${to}: ${counted(row.count)}${isClear(row) ? "" : ", which may be noise"}`;
    return { at, row: from, column: to, count: row.count, kind: isClear(row) ? "signal" : "noise", label };
  });
  const titles = data.ends.map((axis) => data.axes[axis].name);
  document.getElementById("matrix-title").textContent = `Matrix${onlyTitle()}`;
  draw("matrix", matrixOf(cells, names[FROM], names[TO], titles, widthOf("matrix")), "Matrix of counts. The list has the same numbers.", (cell) =>
    actions.choosePair(...rows[cell.at].ends.map((area) => [area]), true),
  );
}
