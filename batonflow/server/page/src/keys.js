// Global keyboard shortcuts, and their help page.

import { dialog, h } from "./dom.js";

export const KEYS = [
  ["/", "Search events"],
  ["j  k", "Next and previous line: event or call"],
  ["Enter", "Open the selected call"],
  ["[  ]", "One commit back and on"],
  ["Home  End", "First commit, newest commit (on the scrubber)"],
  ["c", "Go to the cause of the selected event"],
  ["e", "Go to its effect"],
  ["1 … 6", "Tabs"],
  ["+  −", "Zoom the timeline"],
  ["f", "Fork from the chosen moment"],
  ["t", "Switch between light, dark and the system's theme"],
  ["Esc", "Close, clear the search, drop the selection"],
  ["?", "This help"],
];

export function helpDialog() {
  dialog(
    "Keys",
    h(
      "dl",
      { class: "keys" },
      KEYS.map(([keys, does]) =>
        h(
          "div",
          {},
          h(
            "dt",
            {},
            keys.split("  ").map((key) => h("kbd", { text: key })),
          ),
          h("dd", { text: does }),
        ),
      ),
    ),
    "small",
  );
}

/** Calls an action for a key, unless something is being written. @param {Record<string, () => void>} actions @returns {() => void} */
export function onKeys(actions) {
  const heard = (event) => {
    const writing =
      event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (writing && event.key !== "Escape") return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };
  document.addEventListener("keydown", heard);
  return () => document.removeEventListener("keydown", heard);
}
