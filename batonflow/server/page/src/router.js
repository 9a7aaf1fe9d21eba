// The place in the page as its address: #run=…&tab=…&commit=…&event=…&call=…, #compare=…, #chat=…&session=…,
// #view=inbox, #view=workers, or the filters of the list of runs

/**
 * @typedef {{run?: string, view?: string, tab?: string, commit?: string, event?: string, seq?: string, call?: string,
 *   compare?: string, chat?: string, session?: string} & Record<string, string>} Place
 * The filters of the list of runs have the names in `run_filters.js`.
 */

/** @returns {Place} */
export function place() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** The address of a place. @param {Place} wanted */
export function address(wanted) {
  const known = Object.entries(wanted).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#${new URLSearchParams(known)}`;
}

/** Goes somewhere else; the button back leads here again. @param {Place} wanted */
export function visit(wanted) {
  location.hash = address(wanted);
}

/** Remembers details of the same place. @param {Place} changed */
export function note(changed) {
  try {
    history.replaceState(null, "", address({ ...place(), ...changed }));
  } catch {
    // A frame created from a text does not have its own address.
  }
}
