// The beginning: the parts that every page has, and then what fits the kind of the release.

import { data, fill, make, number, percent, release } from "./base.js";
import { dark } from "./charts.js";
import { redrawTrips } from "./maps.js";
import { beginTrips } from "./trips.js";
import { beginAttributes, showAttributes } from "./attributes.js";

/** Return how far the axes of a level are refined, in words. */
function placeOf(level) {
  const words = level.at.map((depth, end) => (depth ? `${data.axes[end].name} ${data.axes[end].levels[depth - 1].called}` : null));
  return words.filter(Boolean).join(" and ");
}

/** Say what numbers mean, in words that fit the release. */
function showMeaning() {
  const exact = release.unprotected.length ? `Published exactly, without noise: ${release.unprotected.join("; ")}.` : "Every number has noise.";
  fill(
    "meaning",
    make(
      "p",
      {},
      `An interval such as “90 to 110” holds the true number with ${percent} probability, over all noise, if you chose which number to look up before you saw any. ` +
        (data.levels?.some((level) => level.promise === "rows") ? "Ranges in lists are for all rows together: at least that share of them holds. They are often wider." : ""),
    ),
    make("p", {}, "“May be noise” marks a count that is too small to be told from noise. Do not quote such a count; quote a coarser area, or a sum that the page shows."),
    make("p", {}, exact),
    release.kept ? make("p", {}, `The true numbers are of at most ${number(release.kept)} record${release.kept === 1 ? "" : "s"} of each unit (${release.unit}): Trellis left out all others of its, and the total is smaller by them.`) : null,
    release.may_be_negative ? make("p", {}, "A number may be below 0: its noise is not corrected, so that sums of numbers stay right on average.") : null,
    make("p", {}, `Random noise was added to every count that is not listed as exact. It limits what the numbers can tell about ${release.unit}. ${release.meaning.join(" ")}`),
    make("p", {}, `The guarantee in full: ${release.statement}`),
    release.supersedes ? make("p", {}, `This release replaces ${release.supersedes}.`) : null,
  );
  const left = [
    ...(data.left_out ?? []).map((level) => `Counts by ${placeOf(level)} (${number(level.rows)} rows) are not in this page; they are in ${level.file}.`),
    ...(data.tables_left_out ?? []),
    ...(data.views_left_out ?? []).map((view) => `The view ${view.name} (${number(view.rows)} rows) is not in this page; it is in ${view.file}.`),
  ];
  fill("left-out", ...left.map((sentence) => make("li", {}, sentence)));
  document.getElementById("left-out-part").hidden = !left.length;
}

function begin() {
  document.getElementById("which").textContent = release.id;
  const about = [release.description, release.source && `Source: ${release.source.replace(/\.$/, "")}.`].filter(Boolean).join(" ");
  document.getElementById("about").textContent = about;
  document.getElementById("about").hidden = !about;
  showMeaning();
  if (data.kind === "trips") beginTrips();
  else beginAttributes();
}

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  redraw();
});
dark.addEventListener("change", redraw);

/** Draw again what depends on the width of the window or on the scheme of colours. */
function redraw() {
  if (data.kind === "trips") redrawTrips();
  else showAttributes();
}

begin();
