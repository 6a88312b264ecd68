// The lists of trips: the largest flows, and where trips from an area end or those to it begin.

import { data, make, number, percent, release, share, tableOf } from "./base.js";
import { FROM, TO, areaAt, firstLevel, isWithin, levelsFor, levelsOfPairs, rowsFrom } from "./areas.js";
import { actions, hasMap, trips } from "./state.js";

/** Return what a level is called: the levels of both ends. */
function pairTitle(level) {
  const names = level.at.map((depth, end) => data.axes[end].levels[depth - 1].called);
  return `${names[FROM]} to ${names[TO]}`;
}

/** Return what a level is called by its other end. */
function otherTitle(level, direction) {
  return data.axes[1 - direction].levels[level.at[1 - direction] - 1].called;
}

/** Return a button that chooses an area, with its title, and its code where the title does not have it. */
function link(area, chosen) {
  const code = area.title === area.label && area.label !== area.code ? make("small", {}, ` ${area.code}`) : null;
  return make("button", { type: "button", class: "link", onclick: () => chosen(area) }, area.title, code);
}

function headings(level) {
  return [release.many, ...(level.low ? ["low", "high"] : []), "stands out"];
}

function numbersOf(level, row) {
  const ends = level.low ? [level.low[row] ?? "–", level.high[row] ?? "–"] : [];
  return [level.count[row], ...ends, standsOut(level, row)];
}

/** Return whether a row stands out from the noise, in words. */
function standsOut(level, row) {
  if (level.signal && !level.signal[row]) return "may be noise";
  if (!level.signal && !level.exact) return "unknown";
  return level.low && level.low[row] !== null && level.low[row] <= 0 && !level.exact ? "yes, but may be 0" : "yes";
}

/** Return what the intervals of a list promise. */
function promiseOf(level) {
  if (!level.low?.some((end) => end !== null)) return "The release states no intervals of these rows.";
  return level.promise === "rows"
    ? `On average over the noise, low to high holds the true number of at least ${percent} of all rows of this level. For the interval of one question that you have beforehand, type its areas above.`
    : `For a row that you fix beforehand, low to high holds the true number with ${percent} probability.`;
}

/** Return the choice of a direction and a level. */
function switches(directions, words, levels, titleOf) {
  const choice = (of) =>
    make(
      "label",
      {},
      make("input", {
        type: "radio",
        name: "direction",
        value: of,
        checked: of === trips.direction,
        onchange: () => {
          trips.direction = of;
          actions.show();
          document.querySelector(`[name=direction][value="${of}"]`).focus();
        },
      }),
      ` ${words[of]}`,
    );
  const select = make(
    "select",
    {
      id: "level",
      onchange: (event) => {
        trips.level = levels[event.target.selectedIndex];
        actions.show();
        document.getElementById("level").focus();
      },
    },
    ...levels.map((one) => make("option", { selected: one === trips.level }, titleOf(one))),
  );
  return make(
    "fieldset",
    { class: "switches" },
    make("legend", {}, hasMap ? "What the list and the map show" : "What the list shows"),
    ...directions.map(choice),
    make("label", {}, "by ", select),
    withinBox(),
  );
}

function withinBox() {
  const box = make("input", {
    type: "checkbox",
    id: "within",
    checked: trips.within,
    onchange: (event) => {
      trips.within = event.target.checked;
      actions.show();
      document.getElementById("within").focus();
    },
  });
  return make("label", {}, box, " also within one area");
}

function moreButton(are) {
  const more = () => {
    const before = trips.shown;
    trips.shown *= 4;
    actions.show();
    document.querySelectorAll("#list tbody tr")[before]?.querySelector("button").focus();
  };
  return are ? make("button", { type: "button", class: "more", onclick: more }, "Show more rows") : null;
}

/** Return how much of a level's rows is noise, in words: of those that stand out, and of the others. */
export function noiseSentence(level) {
  const noise = level.noise_rows;
  if (!noise) return "";
  if (noise.at_most === 0) return "No row of this level is noise alone.";
  const marked = level.signal ? level.signal.reduce((sum, one) => sum + one, 0) : 0;
  const others = level.count.length - marked;
  const most = Math.ceil(noise.at_most * level.count.length);
  if (!level.signal || !others) {
    return noise.at_most < 1 ? `At most ${share(noise.at_most)} of all rows of this level are noise alone: their true number is 0.` : "";
  }
  const text = `${number(marked)} of the ${number(level.count.length)} rows of this level stand out from the noise; of these, at most ${share(release.signal_rate)} are expected to be noise alone, which means that their true number is 0. `;
  if (others === 1) return text + "The other one may be.";
  return text + (most < others ? `Of the other ${number(others)}, up to ${share(most / others)} are noise alone.` : `Any of the other ${number(others)} may be.`);
}

/** Return how many of the rows that do not stand out may be noise alone, in words; empty where nothing is known. */
export function unmarkedShare(level) {
  if (!level?.noise_rows || !level.signal) return "";
  const others = level.signal.reduce((sum, one) => sum + (one ? 0 : 1), 0);
  const most = Math.ceil(level.noise_rows.at_most * level.count.length);
  return most < others ? `Up to ${share(most / others)} of the rows like this one are noise alone, with 95% probability.` : "";
}

/** Return the list of the largest flows of all. */
export function largestFlows() {
  const levels = levelsOfPairs();
  if (!levels.length) return [make("p", {}, "This page holds no pairs of areas.")];
  if (!levels.includes(trips.level)) trips.level = firstLevel();
  const level = trips.level;
  const listed = level.count
    .map((_, row) => row)
    .filter((row) => trips.within || !isWithin(level, row))
    .toSorted((one, two) => level.count[two] - level.count[one]);
  const rows = listed.slice(0, trips.shown).map((row) => {
    const [from, to] = [areaAt(FROM, level.at[FROM], level.from[row]), areaAt(TO, level.at[TO], level.to[row])];
    const pair = () => actions.choosePair(from, to, true);
    return [link(from, pair), link(to, pair), ...numbersOf(level, row)];
  });
  const inside = trips.within ? "" : ", without those that stay in one area";
  return [
    switches([FROM, TO], ["where trips begin", "where trips end"], levels, pairTitle),
    rows.length
      ? tableOf(`The largest flows, ${pairTitle(level)}${inside}`, ["from", "to", ...headings(level)], rows, promiseOf(level))
      : make("p", {}, "The release has no count above 0 between different areas."),
    moreButton(listed.length > trips.shown),
    make("p", { class: "note" }, noiseSentence(level)),
  ];
}

/** Return the list of the other ends of trips from the chosen areas, or to them. */
export function listOfEnds() {
  const ends = [trips.here ?? trips.other, trips.other ?? trips.here];
  const directions = [FROM, TO].filter((direction) => ends[direction].at[direction] !== null && levelsFor(ends[direction], direction).length);
  if (!directions.length) return [make("p", {}, "This page holds no pairs of areas like this one. The finer tables may.")];
  if (!directions.includes(trips.direction)) [trips.direction] = directions;
  const direction = trips.direction;
  const here = ends[direction];
  const levels = levelsFor(here, direction);
  if (!levels.includes(trips.level)) {
    trips.level = levels.find((level) => level.at[FROM] === level.at[TO]) ?? levels[0];
  }
  const level = trips.level;
  const listed = rowsFrom(level, direction, here.at[direction]).filter((row) => trips.within || !isWithin(level, row));
  const rows = listed.slice(0, trips.shown).map((row) => {
    const other = areaAt(1 - direction, level.at[1 - direction], (direction === FROM ? level.to : level.from)[row]);
    const pair = () => (direction === FROM ? actions.choosePair(here, other, true) : actions.choosePair(other, here, true));
    return [link(other, pair), ...numbersOf(level, row)];
  });
  const caption = direction === FROM ? `Where trips from ${here.title} end` : `Where trips to ${here.title} begin`;
  const words = ends[FROM] === ends[TO] ? ["from here", "to here"] : [`from ${ends[FROM].title}`, `to ${ends[TO].title}`];
  return [
    switches(directions, words, levels, (one) => otherTitle(one, direction)),
    rows.length
      ? tableOf(caption, [otherTitle(level, direction), ...headings(level)], rows, promiseOf(level))
      : make("p", {}, `${caption}: the release has no count above 0 in another area.`),
    moreButton(listed.length > trips.shown),
    make("p", { class: "note" }, noiseSentence(level)),
  ];
}
