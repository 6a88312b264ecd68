// The cards of what is chosen.

import { asking, card, data, make } from "./base.js";
import { chosen, commandOf } from "./state.js";
import { shareOf } from "./shares.js";
import { unmarkedShare } from "./lists.js";

const NO_ROW = "The release has no row for this pair, which stands for a count of 0.";

/**
 * Return the card of an answer; where this page has no number, or no interval, with the command that states it.
 *
 * @param {object|null} answer to what is asked about sets; null where the page holds none
 * @param {object[]|null} sets as in `answerTo`; null where an end has no such area
 */
export function cardOf(title, what, answer, sets) {
  const command = sets && !data.sums.why ? commandOf(sets) : null;
  if (!answer) {
    const text = sets ? "This page has no table from which this adds up." : "This page has no such area at this end.";
    return make("article", { class: "card" }, make("h3", {}, title), make("p", {}, text), asking(sets && commandOf(sets, sets[chosen.whole] ? chosen.whole : null)));
  }
  const { table, note, lacksRow, signal } = answer;
  const more = lacksRow && table.cells && answer.high !== null ? " Of no such pair does the command trellis query state more." : "";
  const [share, isWhole] = sets?.[chosen.whole] ? shareOf(sets, chosen.whole) : ["", true];
  const notes = [note, lacksRow && NO_ROW + more, signal === false && !lacksRow && unmarkedShare(table), share];
  const made = card(title, what, { ...answer, note: notes.filter(Boolean).join(" "), command });
  if (!isWhole) made.querySelector(".note").after(asking(commandOf(sets, chosen.whole)));
  return made;
}
