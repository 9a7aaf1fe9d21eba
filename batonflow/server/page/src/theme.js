// Light or dark: as the system has it, until somebody chooses.

import { button, notice } from "./dom.js";

const KEY = "batonflow.theme";
const ORDER = ["auto", "light", "dark"];

let chosen = "auto";

/** Applies what was chosen before. */
export function startTheme() {
  try {
    chosen = localStorage.getItem(KEY) ?? "auto";
  } catch {
    // A sandboxed frame has no storage.
  }
  apply(ORDER.includes(chosen) ? chosen : "auto");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
}

/** @param {string} theme */
function apply(theme) {
  chosen = theme;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  tell();
}

function tell() {
  document.dispatchEvent(new Event("themechange"));
}

export function nextTheme() {
  apply(ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length]);
  notice(chosen === "auto" ? "Colours as the system has them." : `Colours: ${chosen}.`);
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // Then it holds until the page is left.
  }
}

export const themeButton = () => button("Light or dark", nextTheme, { icon: "moon", bare: true });
