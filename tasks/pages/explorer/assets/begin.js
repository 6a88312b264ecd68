// The beginning: the parts of the page by the roles of its axes, what is shown again once something is chosen, and its address.

import { address, data, fill, make, number, percent, release } from "./base.js";
import { dark } from "./charts.js";
import { showViews } from "./views.js";
import { FROM, TO, addressOf, areasNamed, pairsListed } from "./areas.js";
import { actions, attributes, chosen, middleEnd, titleOf } from "./state.js";
import { showMap, showMatrix } from "./maps.js";
import { beginTrips, showTrips } from "./trips.js";
import { beginAttributes, chooseChart, namesOfChart, showAttributes, showTotal } from "./attributes.js";

/** Say what numbers mean, in words that fit the release. */
function showMeaning() {
  const exact = release.unprotected.length ? `Not everything has noise. Published exactly: ${release.unprotected.map((of) => of.replace(/^(level \d+): /, "$1, ")).join("; ")}.` : "Every number has noise.";
  fill(
    "meaning",
    make(
      "p",
      {},
      `An interval such as “90 to 110” holds the true number with ${percent} probability, over all noise, if you chose which number to look up before you saw any. ` +
        (data.tables.some((table) => table.rows?.promise === "rows") ? "Of all ranges of a list together, at least that share holds." : ""),
    ),
    make("p", {}, "“May be noise” marks a count that is too small to be told from noise. Do not quote such a count; quote a coarser area, or a sum that the page shows."),
    make("p", {}, exact),
    release.kept ? make("p", {}, `The numbers count at most ${number(release.kept)} record${release.kept === 1 ? "" : "s"} of each unit (${release.unit}). Trellis left the others out before it counted, so the total is smaller than the number of records in the table.`) : null,
    release.may_be_negative ? make("p", {}, "A number may be below 0: its noise is not corrected, so that sums of numbers stay right on average.") : null,
    make("p", {}, `Random noise was added to every count that is not listed as exact. It limits what the numbers can tell about ${release.unit}. ${release.meaning.join(" ")}`),
    make("p", {}, `The guarantee in full: ${release.statement}`),
    release.supersedes ? make("p", {}, `This release replaces ${release.supersedes}.`) : null,
  );
  fill("left-out", ...data.left_out.map((sentence) => make("li", {}, sentence)));
  document.getElementById("left-out-part").hidden = !data.left_out.length;
}

function begin() {
  document.getElementById("which").textContent = release.id;
  const about = [release.description, release.source && `Source: ${release.source.replace(/\.$/, "")}.`].filter(Boolean).join(" ");
  document.getElementById("about").textContent = about;
  document.getElementById("about").hidden = !about;
  showMeaning();
  Object.assign(actions, { show });
  if (data.ends) {
    beginTrips();
    document.querySelector(".sides").append(document.getElementById("chart-part")); // after the list of what the map shows
  }
  hasChart = beginAttributes();
  const several = document.getElementById("several");
  const ofCodes = document.querySelectorAll("#only-parts select").length > 0;
  document.getElementById("several-part").hidden = !data.ends && !ofCodes;
  document.getElementById("several-words").textContent = `several ${[data.ends && "areas", ofCodes && "codes"].filter(Boolean).join(" or ")} together`;
  several.addEventListener("change", () => chooseSeveral(several.checked));
  const whole = document.getElementById("whole");
  whole.addEventListener("change", () => {
    chosen.whole = whole.value === "" ? null : Number(whole.value);
    show();
  });
  document.getElementById("clear").addEventListener("click", startAgain);
  addEventListener("hashchange", fromAddress);
  fromAddress();
}

let hasChart = false;

/** Return whether single codes of an attribute are chosen, and not ranges by two handles. */
function isOfCodes(axis) {
  return document.querySelector(`select#only-${axis}`) !== null;
}

/** Let further areas and codes join those that are chosen; or leave the last one of each. */
function chooseSeveral(several) {
  chosen.several = several;
  if (!several) for (const [axis, ranges] of chosen.only) if (isOfCodes(axis)) chosen.only.set(axis, ranges.slice(-1));
  if (data.ends) actions.choosePair(...chosen.ends.map((of) => (several ? of : of.slice(-1))));
  else show();
}

/** Show the page of what is chosen. */
function show() {
  const hadFocus = document.activeElement !== document.body;
  if (data.ends) showTrips();
  else showTotal();
  drawAgain();
  showWholes();
  document.getElementById("several").checked = chosen.several;
  const own = middleEnd();
  showViews(own === null ? [] : chosen.ends[own]);
  document.getElementById("clear").hidden = own === null && !chosen.only.size;
  address.write({
    area: addressOf(chosen.ends[FROM]) || null,
    to: addressOf(chosen.ends[TO]) || null,
    picked: chosen.picked ? 1 : null,
    by: chosen.direction || null,
    level: chosen.pairs?.name,
    within: chosen.within ? 1 : null,
    whole: chosen.whole,
    only: [...chosen.only].flatMap(([axis, ranges]) => ranges.map(({ level, first, last }) => [axis, level, first, last].join("."))).join("_"),
    ...(hasChart ? namesOfChart() : {}),
  });
  if (hadFocus && document.activeElement === document.body) document.getElementById("answer").focus();
}

/** Show of what a share can be: of all areas of each axis of which some are chosen. */
function showWholes() {
  const areChosen = chosen.ends.some((of) => of.length);
  const there = [...data.axes.keys()].filter((axis) => chosen.only.has(axis) || (areChosen && data.ends.includes(axis)));
  const options = there.map((axis) => make("option", { value: axis, selected: axis === chosen.whole }, `all: ${data.axes[axis].name}`));
  document.getElementById("whole-part").hidden = !options.length;
  document.getElementById("whole").replaceChildren(make("option", { value: "" }, "nothing"), ...options);
}

/** Draw again what depends on the width of the window or on the scheme of colours. */
function drawAgain() {
  if (data.ends) {
    showMap();
    showMatrix();
  }
  const [from, to] = chosen.ends.map(titleOf);
  if (hasChart) showAttributes(`${from && ` from ${from}`}${to && ` to ${to}`}`, `${from && `from ${from} `}${to && `to ${to} `}`);
}

/** Forget everything that was chosen. */
function startAgain() {
  Object.assign(chosen, { direction: FROM, pairs: null, within: false, zoom: 1, several: false, whole: null });
  chosen.only.clear();
  if (data.ends) actions.choosePair([], []);
  else show();
  document.getElementById(data.ends ? "here" : "first").focus();
}

/** Choose what the address of the page asks for. */
function fromAddress() {
  const asked = address.read();
  const only = (asked.only ?? "").split("_").map((text) => text.split(".").map(Number));
  const sizeAt = (axis, level) => data.axes[axis].levels[level - 1]?.codes.length ?? 0;
  const isRound = ([axis, level, first, last]) => data.axes[axis].round && last >= 0 && last < first && first < sizeAt(axis, level) - data.axes[axis].apart;
  const isThere = ([axis, level, first, last]) => attributes.includes(axis) && ((first <= last && last < sizeAt(axis, level)) || isRound([axis, level, first, last]));
  const ofAxes = Map.groupBy(only.filter(isThere), ([axis]) => axis);
  chosen.only = new Map([...ofAxes].map(([axis, own]) => [axis, own.map(([, level, first, last]) => ({ level, first, last }))]));
  if (hasChart) chooseChart(asked);
  chosen.direction = asked.by === "1" ? TO : FROM;
  chosen.pairs = pairsListed.find((pairs) => pairs.name === asked.level) ?? null;
  chosen.within = asked.within === "1";
  chosen.whole = data.axes[asked.whole] ? Number(asked.whole) : null;
  const ends = [asked.area, asked.to].map((text) => (text ? areasNamed(text) : []));
  if (ends[TO].length && !ends[FROM].length) chosen.direction = TO;
  chosen.several = [...chosen.only].some(([axis, ranges]) => isOfCodes(axis) && ranges.length > 1); // or if areas are several
  if (data.ends) actions.choosePair(...ends, asked.picked === "1");
  else show();
}

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  drawAgain();
});
dark.addEventListener("change", drawAgain);

begin();
