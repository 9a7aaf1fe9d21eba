// Light or dark: the system's setting, until the user chooses.

import { button, notice } from "./dom.js";

const KEY = "batonflow.theme";
const ORDER = ["auto", "light", "dark"];

let chosen = "auto";

/** Applies the earlier choice. */
export function startTheme() {
  try {
    chosen = localStorage.getItem(KEY) ?? "auto";
  } catch {
    // A sandboxed frame does not have storage.
  }
  apply(ORDER.includes(chosen) ? chosen : "auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", announceTheme);
}

/** @param {string} theme */
function apply(theme) {
  chosen = theme;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  announceTheme();
}

function announceTheme() {
  document.dispatchEvent(new Event("themechange"));
}

export function nextTheme() {
  apply(ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length]);
  notice(chosen === "auto" ? "Colours follow the system." : `Colours: ${chosen}.`);
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // The choice then holds until the page is closed.
  }
}

export const themeButton = () => button("Light or dark", nextTheme, { icon: "moon", bare: true });
