// The views: sums that a release measured by themselves.

import { data, fill, make, number, percent, release, tableOf } from "./base.js";

const MOST_SHOWN = 200; // rows of a view
const MOST_OPEN = 12; // rows of a view that are open from the start

/** Show the views that have a code, or all of them where it is null. */
export function showViews(code = null) {
  const box = document.getElementById("views-part");
  const tables = (data.views ?? []).map((view) => tableOfView(view, code)).filter(Boolean);
  box.hidden = !tables.length;
  fill("views", ...tables);
}

function tableOfView(view, code) {
  const every = view.count.map((_, row) => row);
  const rows = code === null ? every : every.filter((row) => view.columns.some((column) => column.values[row] === code));
  if (!rows.length) return null;
  const cells = rows.slice(0, MOST_SHOWN).map((row) => [
    ...view.columns.map((column) => (column.names?.[row] ? `${column.names[row]} (${column.values[row]})` : column.values[row])),
    view.count[row],
    ...(view.low ? [view.low[row] ?? "–", view.high[row] ?? "–"] : []),
  ]);
  const columns = [...view.columns.map((column) => column.title), release.many, ...(view.low ? ["low", "high"] : [])];
  const more = rows.length > MOST_SHOWN ? ` (the first ${MOST_SHOWN} of ${number(rows.length)} rows)` : "";
  const promise = view.low ? `For a row that you fix beforehand, low to high holds the true number with ${percent} probability.` : "";
  return make("details", { open: rows.length <= MOST_OPEN || data.views.length === 1 }, make("summary", {}, `${view.name}${more}`), tableOf(view.name, columns, cells, promise));
}
