// Trips: choose an area, and see how many records go from it and to it.

import { address, announce, card, data, fill, make, number, release, spoken } from "./base.js";
import { combobox } from "./combobox.js";
import { FROM, TO, addressOf, areaNamed, areas, answerOf, totalOf } from "./areas.js";
import { actions, hasMap, middle, trips } from "./state.js";
import { largestFlows, listOfEnds, unmarkedShare } from "./lists.js";
import { redrawTrips, showMap } from "./maps.js";
import { showViews } from "./views.js";

const FIRST_ROWS = 15; // rows of a list before more are asked for
const fields = []; // of the two ends

/** Return the card of an answer about a pair; one without a number where the page holds none. */
function cardOf(title, what, answer) {
  if (!answer) {
    const text = "This page holds no level with both of these areas. The tables of the release may, and trellis query adds them up.";
    return make("article", { class: "card" }, make("h3", {}, title), make("p", {}, text));
  }
  const share = answer.signal === false && !answer.lacksRow ? unmarkedShare(answer.level) : "";
  return card(title, what, { ...answer, note: [answer.note, share].filter(Boolean).join(" ") });
}

/** Show the whole release: its total, and the largest flows. */
function showEverything() {
  fill(
    "answer",
    card("Everything", "in all", release.total),
    make("p", {}, `Choose an area by its name or code${hasMap ? ", in the map" : ""} or in a list, to see what goes from there and to there.`),
  );
  announce(`Everything: ${spoken(release.total)}.`);
  fill("list", ...largestFlows());
}

/** Return the interval of a number, [count, count] of one that is published exactly, and [null, null] where none is stated. */
function endsOf(answer) {
  return answer.exact ? [answer.count, answer.count] : [answer.low ?? null, answer.high ?? null];
}

/** Return how many of a total do not stay within the area. Both intervals hold at once with at least the probability that is said. */
function elsewhere(total, stays, words) {
  const [[low, high], [least, most]] = [total, stays].map(endsOf);
  const count = total.count - stays.count;
  const noisy = [total, stays].filter((answer) => !answer.exact).length;
  const probability = 1 - noisy * (1 - release.confidence);
  if (stays.ofRows || [low, high, least, most].includes(null) || count < 0 || probability <= 0) return "Those that stay within it are among them.";
  const sure = `with at least ${+(100 * probability).toFixed(2)}% probability`;
  const range = `${number(Math.max(low - most, 0))} to ${number(high - least)}`;
  const amount = noisy === 0 ? number(count) : low > most ? `about ${number(count)} (${range}, ${sure})` : `at most ${number(high - least)} (${sure})`;
  return `Of these, ${amount} ${words} elsewhere. The others stay within it.`;
}

/** Show what goes from the chosen area and to it. */
function showArea(here) {
  const stays = here.at.includes(null) ? null : answerOf(here, here);
  const included = stays ? ", those that stay within it included" : "";
  const [out, into] = ["go", "come from"].map((words, direction) => {
    const total = totalOf(here, direction);
    return total && { ...total, note: stays ? elsewhere(total, stays, words) : "" };
  });
  const cards = [
    out && card(`From ${here.title}`, `from ${here.title} to all areas together${included}`, out),
    into && card(`To ${here.title}`, `to ${here.title} from all areas together${included}`, into),
    stays && cardOf(`Within ${here.title}`, `that stay within ${here.title}`, stays),
  ];
  fill("answer", ...(trips.direction === FROM ? cards : [cards[1], cards[0], cards[2]]));
  announce(`${here.title}: ${[out && `${spoken(out)} from here`, into && `${spoken(into)} to here`].filter(Boolean).join(", ")}.`);
  fill("list", ...listOfEnds());
}

/** Show how many go from one area to another, and back. */
function showPair(from, to) {
  const title = (one, two) => (one === two ? `Within ${one.title}` : `From ${one.title} to ${two.title}`);
  const what = (one, two) => (one === two ? `that stay within ${one.title}` : `from ${one.title} to ${two.title}`);
  const pairs = from === to ? [[from, to]] : [[from, to], [to, from]];
  const answers = pairs.map(([one, two], place) => answerOf(one, two, trips.picked && place === 0));
  fill("answer", ...pairs.map(([one, two], place) => cardOf(title(one, two), what(one, two), answers[place])));
  announce(answers[0] ? `${title(from, to)}: ${spoken(answers[0])}.` : "This page holds no such pair.");
  fill("list", ...listOfEnds());
}

/** Choose where trips begin and where they end, each null for anywhere; `picked` says whether their count was seen before. */
function choosePair(from, to, picked = false) {
  const chosen = [from, to];
  fields.forEach((field, end) => field.show(chosen[end]?.title ?? ""));
  showPairOf(from, to, picked);
}

function showPairOf(from, to, picked) {
  Object.assign(trips, { here: from, other: to, picked, shown: FIRST_ROWS });
  show();
}

/** Return both ends where one of them is chosen anew. */
function withEnd(end, area) {
  const ends = end === FROM ? [area, trips.other] : [trips.here, area];
  if (!ends[FROM] !== !ends[TO]) trips.direction = ends[FROM] ? FROM : TO;
  return ends;
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
  const here = middle();
  if (!here) choosePair(...withEnd(trips.direction, area));
  else if (area.key === trips.here?.key) choosePair(...withEnd(FROM, null));
  else if (area.key === trips.other?.key) choosePair(...withEnd(TO, null));
  else if (trips.direction === FROM) choosePair(here, area, true);
  else choosePair(area, here, true);
  scrollBy({ top: map.getBoundingClientRect().top - before, behavior: "instant" }); // what was pointed at stays where it is
}

/** Forget everything that was chosen. */
function startAgain() {
  Object.assign(trips, { direction: FROM, level: null, within: false, zoom: 1 });
  choosePair(null, null);
  document.getElementById("here").focus();
}

/** Show the page of the areas that are chosen. */
function show() {
  const { here, other } = trips;
  const hadFocus = document.activeElement !== document.body;
  if (here && other) showPair(here, other);
  else if (here || other) showArea(here ?? other);
  else showEverything();
  document.getElementById("clear").hidden = !here && !other;
  address.write({
    area: here && addressOf(here),
    to: other && addressOf(other),
    picked: trips.picked ? 1 : null,
    by: trips.direction || null,
    level: trips.level?.level,
    within: trips.within ? 1 : null,
  });
  document.getElementById("map-answer").textContent = here || other ? document.getElementById("announced").textContent : "";
  redrawTrips();
  showViews(middle());
  if (hadFocus && document.activeElement === document.body) document.getElementById("answer").focus();
}

/** Begin with what the address of the page asks for. */
function fromAddress() {
  const asked = address.read();
  trips.direction = asked.by === "1" ? TO : FROM;
  trips.level = data.levels.find((level) => String(level.level) === asked.level) ?? null;
  trips.within = asked.within === "1";
  const [here, other] = [areaNamed(asked.area), areaNamed(asked.to)];
  if (other && !here) trips.direction = TO;
  choosePair(here, other, asked.picked === "1");
}

/** Begin a page of trips. */
export function beginTrips() {
  Object.assign(actions, { choosePair, point, show });
  document.getElementById("choose-trips").hidden = false;
  const choices = areas.map((area) => ({ label: area.title, detail: `${area.levelName} ${area.label === area.code ? "" : area.code}`, code: area.code, value: area }));
  for (const [end, id] of ["here", "other"].entries()) {
    // what the other field holds stays there, also where it is not settled
    fields.push(combobox(document.getElementById(id), choices, (area) => showPairOf(...withEnd(end, area), false)));
  }
  for (const name of ["unsettled", "settled"]) document.getElementById("choose-trips").addEventListener(name, markUnsettled);
  document.getElementById("clear").addEventListener("click", startAgain);
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
  addEventListener("hashchange", fromAddress);
  fromAddress();
}
