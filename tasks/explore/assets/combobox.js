// A text field that offers the areas whose names or codes have what was typed, for keyboards, screen readers and pointers.

import { make, number } from "./base.js";

const MOST_OFFERED = 30;

/** Return a text as it is compared: without accents, upper and lower case alike. */
function folded(text) {
  return text.normalize("NFD").replace(/\p{M}/gu, "").toLocaleLowerCase().trim();
}

/**
 * Make a combobox out of an input.
 *
 * @param {HTMLInputElement} input the field
 * @param {{label: string, detail: string, value: unknown}[]} choices what can be chosen, coarse to fine
 * @param {(choice: unknown) => void} chosen is told the value that is chosen, or null once the field is empty
 */
export function combobox(input, choices, chosen) {
  const list = make("ul", { id: `${input.id}-list`, role: "listbox", hidden: true, "aria-label": "What fits" });
  input.after(list);
  for (const [name, value] of Object.entries({
    role: "combobox",
    "aria-autocomplete": "list",
    "aria-expanded": "false",
    "aria-controls": list.id,
    autocomplete: "off",
    spellcheck: "false",
  })) {
    input.setAttribute(name, value);
  }
  const searched = choices.map((choice) => [folded(`${choice.label} ${choice.detail}`), choice]);
  let offered = [];
  let active = -1;
  let last = ""; // what stands for the choice

  function close() {
    list.hidden = true;
    active = -1;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function mark(place) {
    active = place;
    for (const [own, option] of [...list.children].entries()) {
      option.setAttribute("aria-selected", String(own === place));
      if (own === place) {
        input.setAttribute("aria-activedescendant", option.id);
        option.scrollIntoView({ block: "nearest" });
      }
    }
  }

  function choose(choice) {
    last = choice.label;
    input.value = last;
    close();
    chosen(choice.value);
  }

  function found(typed) {
    const wanted = folded(typed);
    const holds = searched.filter(([text]) => text.includes(wanted));
    const begins = ([text]) => text.startsWith(wanted);
    return [...holds.filter(begins), ...holds.filter((one) => !begins(one))].map(([, choice]) => choice);
  }

  function open() {
    const all = found(input.value);
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
    const more = all.length - offered.length;
    if (more) options.push(make("li", { class: "more", role: "presentation" }, `and ${number(more)} more: type to narrow down`));
    if (!all.length) options.push(make("li", { class: "more", role: "presentation" }, "nothing has this name or code"));
    list.replaceChildren(...options);
    list.hidden = false;
    active = -1;
    input.setAttribute("aria-expanded", "true");
  }

  input.addEventListener("input", () => {
    if (input.value) open();
    else {
      last = "";
      close();
      chosen(null);
    }
  });
  input.addEventListener("focus", () => {
    last = input.value;
    input.select();
  });
  input.addEventListener("blur", () => {
    close();
    input.value = last;
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (list.hidden) open();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (offered.length) mark((active + step + offered.length + (active < 0 && step < 0 ? 1 : 0)) % offered.length);
    } else if (event.key === "Enter" && !list.hidden && offered.length) {
      event.preventDefault();
      choose(offered[Math.max(active, 0)]);
    } else if (event.key === "Escape") close();
  });
}
