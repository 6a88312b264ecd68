// Trips: choose areas, and see how many records go from them and to them.

import { announce, chip, fill, make, number, release, spoken } from "./base.js";
import { combobox } from "./combobox.js";
import { FROM, TO, areas } from "./areas.js";
import { answerTo } from "./tables.js";
import { actions, chosen, hasMap, middleEnd, onlyTitle, onlyWords, setsFor, titleOf } from "./state.js";
import { largestFlows, listOfEnds } from "./lists.js";
import { cardOf } from "./cards.js";
import { showMap } from "./maps.js";

const FIRST_ROWS = 15; // of a list before more are asked for
const FIELDS = ["here", "other"];
const fields = []; // of the two ends

/** Show the whole release: its total, and the largest flows. */
function showEverything() {
  const sets = setsFor([], []);
  const total = answerTo(sets);
  fill(
    "answer",
    cardOf(`Everything${onlyTitle()}`, `in all${onlyWords()}`, total, sets),
    make("p", {}, `Choose an area by its name or code${hasMap ? ", in the map" : ""} or in a list, to see what goes from there and to there.`),
  );
  announce(`Everything${onlyTitle()}: ${total ? spoken(total) : "no number"}.`);
  fill("list", ...largestFlows());
}

/** Return the interval of a number, [count, count] of one that is published exactly, and [null, null] where none is stated. */
function endsOf(answer) {
  return answer.exact ? [answer.count, answer.count] : [answer.low ?? null, answer.high ?? null];
}

/** Return how many of a total do not stay within the areas. Both intervals hold at once with at least the probability that is said. */
function elsewhere(total, stays, words, them) {
  const [[low, high], [least, most]] = [total, stays].map(endsOf);
  const count = total.count - stays.count;
  const noisy = [total, stays].filter((answer) => !answer.exact).length;
  const probability = 1 - noisy * (1 - release.confidence);
  if ([low, high, least, most].includes(null) || count < 0 || probability <= 0) return `Those that stay within ${them} are among them.`;
  const sure = `with at least ${+(100 * probability).toFixed(2)}% probability`;
  const range = `${number(Math.max(low - most, 0))} to ${number(high - least)}`;
  const amount = noisy === 0 ? number(count) : low > most ? `about ${number(count)} (${range}, ${sure})` : `at most ${number(high - least)} (${sure})`;
  return `Of these, ${amount} ${words} elsewhere. The others stay within ${them}.`;
}

/** Show what goes from the chosen areas and to them. */
function showAreas(here) {
  const [title, them] = [titleOf(here), here.length > 1 ? "them" : "it"];
  const inside = here.some((area) => area.at.includes(null)) ? null : setsFor(here, here);
  const stays = inside && answerTo(inside);
  const included = stays ? `, those that stay within ${them} included` : "";
  const ofEnds = [setsFor(here, []), setsFor([], here)];
  const [out, into] = ["go", "come from"].map((words, direction) => {
    const total = ofEnds[direction] && answerTo(ofEnds[direction]);
    return total && { ...total, note: [total.note, stays && elsewhere(total, stays, words, them)].filter(Boolean).join(" ") };
  });
  const cards = [
    ofEnds[FROM] && cardOf(`From ${title}${onlyTitle()}`, `from ${title} to all areas together${onlyWords()}${included}`, out, ofEnds[FROM]),
    ofEnds[TO] && cardOf(`To ${title}${onlyTitle()}`, `to ${title} from all areas together${onlyWords()}${included}`, into, ofEnds[TO]),
    inside && cardOf(`Within ${title}${onlyTitle()}`, `that stay within ${title}${onlyWords()}`, stays, inside),
  ];
  fill("answer", ...(chosen.direction === FROM ? cards : [cards[1], cards[0], cards[2]]));
  announce(`${title}${onlyTitle()}: ${[out && `${spoken(out)} from here`, into && `${spoken(into)} to here`].filter(Boolean).join(", ")}.`);
  fill("list", ...listOfEnds());
}

/** Show how many go from some areas to others, and back. */
function showPair(from, to) {
  const isSame = from.length === to.length && from.every((area) => to.includes(area));
  const words = (one, two) => (isSame ? titleOf(one) : `${titleOf(one)} to ${titleOf(two)}`);
  const pairs = isSame ? [[from, to]] : [[from, to], [to, from]];
  const asked = pairs.map(([one, two]) => setsFor(one, two));
  const answers = asked.map((sets, place) => sets && answerTo(sets, chosen.picked && place === 0));
  const cards = pairs.map(([one, two], place) =>
    cardOf(`${isSame ? "Within" : "From"} ${words(one, two)}${onlyTitle()}`, `${isSame ? "that stay within" : "from"} ${words(one, two)}${onlyWords()}`, answers[place], asked[place]),
  );
  fill("answer", ...cards);
  announce(answers[0] ? `${isSame ? "Within" : "From"} ${words(from, to)}${onlyTitle()}: ${spoken(answers[0])}.` : "This page holds no such pair.");
  fill("list", ...listOfEnds());
}

/** Show the areas that are chosen, their cards, and the list. */
export function showTrips() {
  const [from, to] = chosen.ends;
  if (from.length && to.length) showPair(from, to);
  else if (from.length || to.length) showAreas(from.length ? from : to);
  else showEverything();
  const isChosen = middleEnd() !== null;
  document.getElementById("clear").hidden = !isChosen;
  document.getElementById("clicks-part").hidden = !chosen.several;
  FIELDS.forEach((id, end) => fill(`${id}-chosen`, ...(chosen.several ? chosen.ends[end].map((area) => chip(area.title, () => leave(end, area))) : [])));
  document.getElementById("map-answer").textContent = isChosen ? document.getElementById("announced").textContent : "";
}

/** Leave out one of several chosen areas. */
function leave(end, area) {
  choosePair(...withEnd(end, chosen.ends[end].filter((own) => own !== area)));
  document.getElementById(FIELDS[end]).focus();
}

/** Choose where trips begin and where they end, nothing for anywhere; `picked` says whether their count was seen before. */
function choosePair(from, to, picked = false) {
  const ends = [from, to];
  chosen.several ||= ends.some((of) => of.length > 1);
  fields.forEach((field, end) => field.show(chosen.several ? "" : (ends[end][0]?.title ?? "")));
  showPairOf(from, to, picked);
}

function showPairOf(from, to, picked) {
  Object.assign(chosen, { ends: [from, to], picked, shown: FIRST_ROWS });
  actions.show();
}

/** Return both ends where one of them is chosen anew. */
function withEnd(end, own) {
  const ends = chosen.ends.with(end, own);
  if (!ends[FROM].length !== !ends[TO].length) chosen.direction = ends[FROM].length ? FROM : TO;
  return ends;
}

/** Take what was chosen in a field: in place of what was chosen there, or beside it. */
function take(end, area) {
  if (!chosen.several) showPairOf(...withEnd(end, area ? [area] : []), false);
  else if (area) choosePair(...withEnd(end, [...new Set([...chosen.ends[end], area])]));
}

/** Say whether the page shows something else than the fields hold. */
function markUnsettled() {
  const isSettled = fields.every((field) => field.isSettled());
  document.getElementById("unsettled").hidden = isSettled;
  document.getElementById("answer").classList.toggle("earlier", !isSettled);
}

/** Choose what a pointer shows on the map: the first area, or the other end of trips from it or to it; one that is chosen is left. */
function point(area) {
  const map = document.getElementById("map");
  const before = map.getBoundingClientRect().top;
  const clicked = chosen.several ? Number(document.getElementById("clicks").value) : null;
  const own = middleEnd();
  const left = (clicked === null ? [FROM, TO] : [clicked]).find((end) => chosen.ends[end].includes(area));
  if (left !== undefined) choosePair(...withEnd(left, chosen.ends[left].filter((other) => other !== area)));
  else if (clicked !== null) choosePair(...withEnd(clicked, [...chosen.ends[clicked], area]), chosen.ends[1 - clicked].length > 0);
  else if (own === null) choosePair(...withEnd(chosen.direction, [area]));
  else choosePair(...(chosen.direction === FROM ? [chosen.ends[own], [area]] : [[area], chosen.ends[own]]), true);
  scrollBy({ top: map.getBoundingClientRect().top - before, behavior: "instant" }); // what was pointed at stays where it is
}

/** Begin the choice of areas. */
export function beginTrips() {
  Object.assign(actions, { choosePair, point });
  document.getElementById("choose-trips").hidden = false;
  const choices = areas.map((area) => ({ label: area.title, detail: `${area.levelName} ${area.label === area.code ? "" : area.code}`, code: area.code, value: area }));
  // what the other field holds stays there, also where it is not settled
  FIELDS.forEach((id, end) => fields.push(combobox(document.getElementById(id), choices, (area) => take(end, area))));
  for (const name of ["unsettled", "settled"]) document.getElementById("choose-trips").addEventListener(name, markUnsettled);
  for (const [id, factor] of [
    ["nearer", 1.6],
    ["farther", 1 / 1.6],
    ["whole", 0],
  ]) {
    document.getElementById(id).addEventListener("click", () => {
      chosen.zoom = factor ? Math.min(40, Math.max(1, chosen.zoom * factor)) : 1;
      showMap();
    });
  }
}
