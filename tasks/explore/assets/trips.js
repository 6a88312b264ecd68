// Trips: choose an area, and see how many records go from it and to it.

import { address, announce, card, counted, data, fill, make, release } from "./base.js";
import { combobox } from "./combobox.js";
import { FROM, TO, addressOf, areaNamed, areas, answerOf, totalOf } from "./areas.js";
import { actions, hasMap, trips } from "./state.js";
import { largestFlows, listOf, unmarkedShare } from "./lists.js";
import { redrawTrips, showMap } from "./maps.js";
import { showViews } from "./views.js";

const FIRST_ROWS = 15; // rows of a list before more are asked for

/** Return the card of an answer about a pair; one without a number where the page holds none. */
function cardOf(title, what, found) {
  if (!found) {
    const text = "This page holds no level with both of these areas. The tables of the release may, and trellis query adds them up.";
    return make("article", { class: "card" }, make("h3", {}, title), make("p", {}, text));
  }
  const share = found.signal === false && !found.lacksRow ? unmarkedShare(found.level) : "";
  return card(title, what, { ...found, note: [found.note, share].filter(Boolean).join(" ") });
}

/** Show the whole release: its total, and the largest flows. */
function showEverything() {
  fill(
    "answer",
    card("Everything", "in all", release.total),
    make("p", {}, `Choose an area by its name or code${hasMap ? ", in the map" : ""} or in a list, to see what goes from there and to there.`),
  );
  fill("list", ...largestFlows());
}

/** Show what goes from the chosen area and to it. */
function showArea(here) {
  const out = totalOf(here, FROM);
  const into = totalOf(here, TO);
  const stays = here.at.includes(null) ? null : answerOf(here, here);
  const cards = [
    out && card(`From ${here.title}`, `from ${here.title} to anywhere`, out),
    into && card(`To ${here.title}`, `to ${here.title} from anywhere`, into),
    stays && cardOf(`Within ${here.title}`, `from ${here.title} to ${here.title} itself`, stays),
  ];
  fill("answer", ...cards);
  announce(`${here.title}: ${[out && `${counted(out.count)} from here`, into && `${counted(into.count)} to here`].filter(Boolean).join(", ")}.`);
  fill("list", ...listOf(here));
}

/** Show how many go from one area to another, and back. */
function showPair(from, to) {
  const pairs = from === to ? [[from, to]] : [[from, to], [to, from]]; // prettier-ignore
  fill("answer", ...pairs.map(([one, two]) => cardOf(`From ${one.title} to ${two.title}`, `from ${one.title} to ${two.title}`, answerOf(one, two, trips.picked))));
  const found = answerOf(from, to);
  announce(found ? `From ${from.title} to ${to.title}: ${counted(found.count)}.` : "This page holds no such pair.");
  fill("list", ...listOf(from));
}

/** Choose an area; null for everything. */
function choose(area) {
  Object.assign(trips, { here: area, other: null, picked: false, shown: FIRST_ROWS });
  show();
}

/** Choose where trips begin and where they end; `picked` says whether their count was seen before. */
function choosePair(from, to, picked = false) {
  Object.assign(trips, { here: from, other: to, picked, shown: FIRST_ROWS });
  show();
}

/** Choose where trips end; where they begin may come later. */
function chooseOther(area) {
  if (trips.here) choosePair(trips.here, area);
  else trips.other = area;
}

/** Show the page of the areas that are chosen. */
function show() {
  const { here, other } = trips;
  const hadFocus = document.activeElement !== document.body;
  document.getElementById("here").value = here ? here.title : "";
  document.getElementById("other").value = other ? other.title : "";
  if (!here) showEverything();
  else if (other) showPair(here, other);
  else showArea(here);
  document.getElementById("clear").hidden = !here;
  address.write({
    area: here && addressOf(here),
    to: other && addressOf(other),
    picked: trips.picked ? 1 : null,
    by: trips.direction || null,
    level: trips.level?.level,
  });
  redrawTrips();
  showViews(here ? here.code : null);
  if (hadFocus && document.activeElement === document.body) document.getElementById("answer").focus();
}

/** Begin with what the address of the page asks for. */
function fromAddress() {
  const asked = address.read();
  trips.direction = asked.by === "1" ? TO : FROM;
  trips.level = data.levels.find((level) => String(level.level) === asked.level) ?? null;
  const [here, other] = [areaNamed(asked.area), areaNamed(asked.to)];
  if (here && other) choosePair(here, other, asked.picked === "1");
  else choose(here);
}

/** Begin a page of trips. */
export function beginTrips() {
  Object.assign(actions, { choose, choosePair, show });
  document.getElementById("choose-trips").hidden = false;
  const choices = areas.map((area) => ({ label: area.title, detail: `${area.levelName} ${area.label === area.code ? "" : area.code}`, value: area }));
  combobox(document.getElementById("here"), choices, (area) => (area && trips.other ? choosePair(area, trips.other) : choose(area)));
  combobox(document.getElementById("other"), choices, chooseOther);
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
  addEventListener("hashchange", fromAddress);
  fromAddress();
}
