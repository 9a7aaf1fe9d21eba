// Usage of steps and agents: attempts, time, waits, tokens, money.

import { callTree, recordOf } from "./calls.js";
import { graphPath } from "./model.js";

/**
 * @typedef {{name: string, path: string, attempts: number, failed: number, busy: number, waited: number, times: number[],
 *   input: number, output: number, cost: number | null, calls: number}} Sum
 */

/** Sums by step and by agent, at an instant. @param {import("./model.js").RunModel} model @param {number} time */
export function sums(model, time) {
  /** @type {Map<string, Sum>} */ const steps = new Map();
  /** @type {Map<string, Sum>} */ const agents = new Map();
  for (const attempt of model.attempts) {
    if (attempt.began > time) continue;
    addAttempt(sumFor(steps, attempt.step, graphPath(attempt.path)), attempt, time);
    if (attempt.agent) addAttempt(sumFor(agents, attempt.agent, graphPath(attempt.path)), attempt, time);
  }
  const total = empty("all", "");
  for (const call of callTree(model, time).calls) {
    const { usage, agent = call.row?.agent } = recordOf(call);
    const path = graphPath(call.path);
    for (const sum of [total, sumFor(steps, call.entry.step, path), agent && sumFor(agents, agent, path)]) {
      if (!sum) continue;
      sum.calls += 1;
      if (!usage) continue;
      sum.input += usage.input_tokens ?? 0;
      sum.output += usage.output_tokens ?? 0;
      if (typeof usage.cost === "number") sum.cost = (sum.cost ?? 0) + usage.cost;
    }
  }
  return { steps: byPath(steps), agents: byPath(agents), total };
}

/** Children after their parent workflow. @param {Map<string, Sum>} all */
const byPath = (all) =>
  [...all.values()].sort((one, other) => (one.path < other.path ? -1 : Number(one.path > other.path)));

/** @param {Map<string, Sum>} all @param {string} name @param {string} path */
function sumFor(all, name, path) {
  const key = `${path}\n${name}`;
  let found = all.get(key);
  if (!found) all.set(key, (found = empty(name, path)));
  return found;
}

/** @param {string} name @param {string} path @returns {Sum} */
const empty = (name, path) => ({
  name,
  path,
  attempts: 0,
  failed: 0,
  busy: 0,
  waited: 0,
  times: [],
  input: 0,
  output: 0,
  cost: null,
  calls: 0,
});

/** @param {Sum} sum @param {import("./model.js").Attempt} attempt @param {number} time */
function addAttempt(sum, attempt, time) {
  sum.attempts += 1;
  if (attempt.state === "failed" && attempt.end <= time) sum.failed += 1;
  let busy = 0;
  for (const stretch of attempt.stretches) {
    const length = Math.max(0, Math.min(stretch.to, time) - stretch.from);
    if (stretch.wait) sum.waited += length;
    else busy += length;
  }
  sum.busy += busy;
  sum.times.push(busy);
}

/** The value below which a part of the values lie. @param {number[]} values @param {number} part */
export function quantile(values, part) {
  const inOrder = [...values].sort((one, other) => one - other);
  return inOrder.length ? inOrder[Math.min(inOrder.length - 1, Math.floor(part * inOrder.length))] : null;
}
