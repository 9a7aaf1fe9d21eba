// Selections besides events: an attempt of a step as a whole.

/**
 * A row that represents an attempt.
 * @param {import("./model.js").RunModel} model @param {import("./model.js").Attempt} attempt
 * @returns {import("./model.js").Row}
 */
export function attemptRow(model, attempt) {
  const first = attempt.entries[0];
  const index = model.rowsOf(attempt)[0]?.index ?? -1;
  return {
    id: `attempt:${attempt.key}`,
    index,
    kind: "note",
    entry: first,
    event: null,
    type: attempt.step,
    how: "attempt",
    path: attempt.path,
    step: attempt.step,
    agent: attempt.agent,
    at: attempt.began,
    commit: attempt.entries.at(-1).commit,
    seq: null,
    value: undefined,
    attempt,
  };
}
