// A text field that offers the areas whose names or codes have what was typed, for keyboards, screen readers and pointers.

import { announce, make, number } from "./base.js";

const MOST_OFFERED = 30;
const MOST_MEANT = 5; // offered where nothing has what was typed

const STROKES = { ø: "o", ł: "l", đ: "d", ı: "i", æ: "ae", œ: "oe", ß: "ss" }; // which are no accents to Unicode

/** Return a text as it is compared: without accents, upper and lower case alike. */
function folded(text) {
  const plain = text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().trim();
  return plain.replace(/[øłđıæœß]/g, (letter) => STROKES[letter]);
}

/** Return how many letters have to be put in, left out or replaced to make one text of another; Levenshtein's distance. */
function distance(one, other) {
  let row = [...other, ""].map((_, place) => place);
  for (const [place, letter] of [...one].entries()) {
    const next = [place + 1];
    for (const [at, own] of [...other].entries()) {
      next.push(Math.min(row[at] + (letter === own ? 0 : 1), row[at + 1] + 1, next[at] + 1));
    }
    row = next;
  }
  return row.at(-1);
}

const HOW_TO_CHOOSE = matchMedia("(pointer: coarse)").matches ? "Tap the one you mean." : "Choose one with the arrow keys, then press Enter.";

/**
 * Make a combobox out of an input. While it holds a text that nothing was chosen for, it sends `unsettled`, and `settled` after that.
 *
 * @param {HTMLInputElement} input the field
 * @param {{label: string, detail: string, code: string, value: unknown}[]} choices what can be chosen, coarse to fine
 * @param {(choice: unknown) => void} chosen is told the value that is chosen, or null once the field is empty
 * @returns {{isSettled: () => boolean, show: (label: string) => void}} whether what it holds was chosen, and a way to show a choice
 */
export function combobox(input, choices, chosen) {
  const list = make("ul", { id: `${input.id}-list`, role: "listbox", hidden: true, "aria-label": "What fits" });
  const hint = make("p", { class: "hint", id: `${input.id}-hint` });
  input.after(list, hint);
  for (const [name, value] of Object.entries({
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    "aria-describedby": hint.id,
    autocomplete: "off",
    spellcheck: "false",
  })) {
    input.setAttribute(name, value);
  }
  const searched = choices.map((choice) => {
    const [label, code] = [folded(choice.label), folded(choice.code)];
    return { choice, label, code, text: `${label} ${folded(choice.detail)}` };
  });
  let offered = [];
  let active = -1;
  let last = ""; // what stands for the choice

  /** Say what is to be done about a text that nothing was chosen for; nothing once it is settled. */
  function say(text) {
    hint.textContent = text;
    input.dispatchEvent(new Event(text ? "unsettled" : "settled", { bubbles: true }));
  }

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(place) {
    active = place;
    for (const [own, option] of list.querySelectorAll("[role=option]").entries()) {
      option.setAttribute("aria-selected", String(own === place));
      if (own === place) {
        input.setAttribute("aria-activedescendant", option.id);
        option.scrollIntoView({ block: "nearest" });
      }
    }
  }

  function show(label) {
    last = label;
    input.value = label;
    say("");
  }

  function choose(choice) {
    show(choice.label);
    close();
    chosen(choice.value);
  }

  /** Return the choices that have every word that was typed, of some length: those first that are called so, then those whose names begin so. */
  function matching(typed, shortest = 1) {
    const wanted = folded(typed);
    const words = wanted.split(/[\s,;()]+/).filter((word) => word.length >= shortest);
    const rank = ({ label, code }) => [label === wanted || code === wanted, label.startsWith(words[0] ?? ""), true].indexOf(true);
    const fit = searched.filter(({ text }) => words.every((word) => text.includes(word)));
    return fit.toSorted((one, two) => rank(one) - rank(two)).map(({ choice }) => choice);
  }

  /** Return the place of the choice that was surely meant: the only one, or the only one whose code it is or that begins so; -1 for none. */
  function sure() {
    const wanted = folded(input.value);
    const coded = searched.filter(({ code }) => code === wanted).map(({ choice }) => choice);
    const begin = offered.filter((choice) => folded(choice.label).startsWith(wanted));
    const only = [offered, coded, begin].find((fit) => fit.length === 1) ?? [];
    return offered.indexOf(only[0]);
  }

  /** Return the choices that have the longer words of what was typed, or whose names are spelt most like it, or whose codes but for one letter. */
  function meant(typed) {
    const wanted = folded(typed);
    const longer = /\S{3}/.test(wanted) ? matching(typed, 3) : [];
    if (longer.length) return longer;
    const most = 1 + Math.floor(wanted.length / 5);
    const near = searched.map(({ choice, label, code }) => {
      const isCode = Math.min(wanted.length, code.length) > 1 && distance(wanted, code) === 1;
      return { choice, far: isCode ? 1 : wanted.length > 2 ? distance(wanted, label.slice(0, wanted.length)) : Infinity };
    });
    const fit = near.filter(({ far }) => far <= most);
    return fit.toSorted((one, two) => one.far - two.far).map(({ choice }) => choice);
  }

  function open() {
    const fit = matching(input.value);
    const all = fit.length ? fit : meant(input.value).slice(0, MOST_MEANT);
    offered = all.slice(0, MOST_OFFERED);
    const options = offered.map((choice, place) =>
      make(
        "li",
        {
          id: `${list.id}-${place}`,
          role: "option",
          "aria-selected": "false",
          onpointerdown: (event) => {
            event.preventDefault();
            choose(choice);
          },
        },
        choice.label,
        make("small", {}, ` ${choice.detail}`),
      ),
    );
    const note = (text) => make("li", { class: "more", role: "presentation" }, text);
    const more = all.length - offered.length;
    if (more) options.push(note(`and ${number(more)} more: type to narrow down`));
    if (!fit.length) options.unshift(note(offered.length ? "Nothing has this name or code. Did you mean:" : "Nothing has this name or code."));
    list.replaceChildren(...options);
    list.hidden = false;
    active = -1;
    input.setAttribute("aria-expanded", "true");
  }

  input.addEventListener("input", () => {
    hint.textContent = "";
    if (input.value) open();
    else {
      show("");
      close();
      chosen(null);
    }
  });
  input.addEventListener("focus", () => input.select());
  input.addEventListener("blur", () => {
    const meantHere = offered[sure()];
    if (!list.hidden && meantHere && input.value !== last) choose(meantHere);
    close();
    const notChosen = last ? `This is not chosen: the page still shows ${last}.` : "Nothing is chosen yet. Choose an area from the list.";
    say(input.value === last ? "" : notChosen);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (offered.length) mark((active + step + offered.length + (active < 0 && step < 0 ? 1 : 0)) % offered.length);
    } else if (event.key === "Enter" && (active >= 0 || input.value !== last)) {
      event.preventDefault();
      if (list.hidden) open();
      if (!offered.length) return;
      const place = active >= 0 ? active : sure();
      if (place >= 0) choose(offered[place]);
      else {
        say(`${number(offered.length)} areas fit. ${HOW_TO_CHOOSE}`); // which one is meant is for the reader to say
        announce(hint.textContent);
      }
    } else if (event.key === "Escape") close();
  });
  return { isSettled: () => input.value === last, show };
}
