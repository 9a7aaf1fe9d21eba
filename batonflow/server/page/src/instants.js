// A run at an instant: the status of each part of the graph, and the state.

import { graphPath } from "./model.js";

/**
 * @typedef {import("./model.js").RunModel} RunModel
 * @typedef {{commit: number, time: number, newest: boolean}} Instant
 * @typedef {"idle" | "done" | "running" | "waiting" | "failed" | "cancelled"} NodeState
 * @typedef {{nodes: Map<string, {count: number, state: NodeState}>, edges: Map<string, number>}} GraphState
 */

/** @param {RunModel} model @param {number | null} commit null for the newest @returns {Instant} */
export function instantOf(model, commit) {
  if (commit === null) return { commit: model.lastCommit, time: Infinity, newest: true };
  const place = model.placeOf(commit);
  const known = model.commits[place] ?? { commit: 0, at: 0 };
  return { commit: known.commit, time: known.at, newest: false };
}

/** The status of an attempt at an instant. @param {import("./model.js").Attempt} attempt @param {number} time @returns {NodeState} */
export function attemptAt(attempt, time) {
  if (attempt.began > time) return "idle";
  const stretch = attempt.stretches.find((one) => one.from <= time && time < one.to);
  if (stretch) return stretch.wait ? "waiting" : "running";
  return attempt.state === "returned" ? "done" : attempt.state;
}

/** @param {NodeState} state */
const goesOn = (state) => state === "running" || state === "waiting";

/**
 * The counts of nodes and edges up to an instant, and the status of the nodes.
 * @param {RunModel} model @param {Instant} instant @returns {GraphState}
 */
export function graphAt(model, instant) {
  /** @type {GraphState} */ const found = { nodes: new Map(), edges: new Map() };
  for (const attempt of model.attempts) {
    if (attempt.began > instant.time) continue;
    let state = attemptAt(attempt, instant.time);
    if (model.ended && instant.newest && goesOn(state)) state = "done";
    const node = join(attempt.path, attempt.step);
    count(found, node, state, attempt.attempt ? 0 : 1);
    if (attempt.attempt) continue;
    for (const [id, number] of attempt.causes) {
      const event = model.byId.get(id)?.events?.find((one) => one.number === number);
      if (event) edge(found, `${join(attempt.path, event.type)}->${node}`);
    }
  }
  for (const row of model.rows) {
    if (row.kind !== "event" || row.at > instant.time) continue;
    countEvent(found, row);
  }
  return found;
}

/** @param {GraphState} found @param {import("./model.js").Row} row */
function countEvent(found, row) {
  const node = join(row.path, row.type);
  if (row.how === "returned" || row.how === "sent" || (row.how === "streamed" && row.event?.number === 0)) {
    count(found, node, "done", 1);
    edge(found, `${join(row.path, row.step)}->${node}`);
  } else if (row.how === "came" && row.entry?.kind !== "ended") {
    count(found, node, "done", 1);
  }
}

/** @param {GraphState} found @param {string} name @param {NodeState} state @param {number} times */
function count(found, name, state, times) {
  const node = found.nodes.get(name);
  if (!node) {
    found.nodes.set(name, { count: times, state });
    return;
  }
  node.count += times;
  // The last attempt counts: a failure before a success leaves no mark.
  if (goesOn(state) || !goesOn(node.state)) node.state = state;
}

/** @param {GraphState} found @param {string} name */
function edge(found, name) {
  found.edges.set(name, (found.edges.get(name) ?? 0) + 1);
}

/** @param {string} path @param {string} name */
const join = (path, name) => (path ? `${graphPath(path)}/${name}` : name);

/**
 * @typedef {{name: string, value: any, deleted: boolean, commit: number, entry: import("./model.js").Entry, before: any}} Kept
 */

/**
 * The state of a workflow of the tree after a commit, by name, with the commit that wrote each value and the one before.
 * @param {RunModel} model @param {string} path @param {number} commit @returns {Map<string, Kept>}
 */
export function stateAt(model, path, commit) {
  /** @type {Map<string, Kept>} */ const state = new Map();
  for (const entry of model.entries) {
    if (entry.commit > commit) break;
    if (entry.path !== path) continue;
    for (const write of entry.writes ?? []) {
      const known = state.get(write.path);
      const before = known && !known.deleted ? known.value : undefined;
      state.set(write.path, {
        name: write.path,
        value: write.value,
        deleted: write.deleted ?? false,
        commit: entry.commit,
        entry,
        before,
      });
    }
  }
  return state;
}

/** The paths of the tree that have state, outermost first. @param {RunModel} model @returns {string[]} */
export function pathsWithState(model) {
  const paths = new Set([""]);
  for (const entry of model.entries) if (entry.writes?.length) paths.add(entry.path);
  return [...paths];
}

/**
 * The differences of two values, as a list of places and values.
 * @param {any} before @param {any} after @param {string} [where] @param {any[]} [found]
 * @returns {{where: string, before: any, after: any}[]}
 */
export function differences(before, after, where = "", found = []) {
  if (found.length >= 100 || Object.is(before, after)) return found;
  const whole = [before, after].some((value) => value === null || typeof value !== "object" || "$large" in value);
  if (whole || Array.isArray(before) !== Array.isArray(after)) {
    if (JSON.stringify(before) !== JSON.stringify(after)) found.push({ where, before, after });
    return found;
  }
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const place = Array.isArray(after) ? `${where}[${name}]` : `${where}${where ? "." : ""}${name}`;
    differences(before[name], after[name], place, found);
  }
  return found;
}
