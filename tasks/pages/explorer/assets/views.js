// The views: groupings beside the levels.

import { data, fill, make, number, percent, release, tableOf } from "./base.js";

const MOST_SHOWN = 200; // rows of a view
const MOST_OPEN = 12; // rows of a view that are open from the start

/** Show the rows of views that are about areas, or all of them where there are none. */
export function showViews(areas) {
  const box = document.getElementById("views-part");
  const tables = (data.views ?? []).map((view) => tableOfView(view, areas)).filter(Boolean);
  box.hidden = !tables.length;
  fill("views", ...tables);
}

/** Return what tells whether a row of a view is about an area: at some end, it has all codes of the area's path. */
function isAbout(view, area) {
  const columnsOf = (axis) => area.path.map((_, above) => view.columns.find((column) => column.axis === axis && column.level === above + 1));
  const ends = area.at.flatMap((at, end) => (at === null ? [] : [columnsOf(data.ends[end])]));
  const there = ends.filter((columns) => columns.every(Boolean));
  return (row) => there.some((columns) => columns.every((column, place) => column.values[row] === area.path[place]));
}

function tableOfView(view, areas) {
  const every = view.count.map((_, row) => row);
  const isOfOne = areas.map((area) => isAbout(view, area));
  const rows = areas.length ? every.filter((row) => isOfOne.some((isOf) => isOf(row))) : every;
  if (!rows.length) return null;
  const cells = rows.slice(0, MOST_SHOWN).map((row) => [
    ...view.columns.map((column) => (column.names?.[row] ? `${column.names[row]} (${column.values[row]})` : column.values[row])),
    view.count[row],
    ...(view.low ? [view.low[row] ?? "–", view.high[row] ?? "–"] : []),
  ]);
  const columns = [...view.columns.map((column) => column.title), release.many, ...(view.low ? ["low", "high"] : [])];
  const more = rows.length > MOST_SHOWN ? ` (the first ${MOST_SHOWN} of ${number(rows.length)} rows)` : "";
  const promise = view.low ? `For a row that you fix beforehand, low to high holds the true number with ${percent} probability.` : "";
  return make("details", { open: rows.length <= MOST_OPEN || data.views.length === 1 }, make("summary", {}, `By ${view.called}${more}`), tableOf(`By ${view.called}`, columns, cells, promise));
}
