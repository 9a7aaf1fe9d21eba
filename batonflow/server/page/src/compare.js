// Two runs beside each other: the place where they part, and the differences after it.

import { callTree, recordOf, sumOf } from "./calls.js";
import { hasLarge, took } from "./format.js";
import { differences, pathsWithState, stateAt } from "./instants.js";

/**
 * @typedef {import("./session.js").Session} Session
 * @typedef {import("./calls.js").Call} Call
 * @typedef {import("./model.js").Row} Row
 * @typedef {{session: Session, calls: Call[], rows: Row[]}} Side
 */

const FLOW = new Set(["returned", "sent", "came", "answered", "failed"]);

/** A run for a comparison. @param {Session} session @returns {Side} */
export function sideOf(session) {
  const { calls } = callTree(session.model);
  const rows = session.model.rows.filter((row) => FLOW.has(row.how));
  return { session, calls, rows };
}

/** The number of equal items at the start of two lists. @template T @param {T[]} one @param {T[]} other @param {(item: T) => string} key */
export function shared(one, other, key) {
  let count = 0;
  while (count < one.length && count < other.length && key(one[count]) === key(other[count])) count += 1;
  return count;
}

/** A value as text without the ids of tool calls, which differ from run to run. @param {any} value */
export const plain = (value) =>
  JSON.stringify(value ?? null, (name, part) => (name === "tool_call_id" || name === "tool_id" ? undefined : part));

/** @param {Call} call */
export function callKey(call) {
  const { messages, answer, error, model, options } = recordOf(call);
  return plain([call.path, call.agent, call.purpose, model, options, messages, answer, error]);
}

/** @param {Row} row */
export const rowKey = (row) => plain([row.path, row.step, row.type, row.how, row.value]);

/** The parameters of calls that differ, each with its two values. @param {Call} one @param {Call} other @returns {[string, any, any][]} */
export function changedParameters(one, other) {
  const [before, after] = [one, other].map((call) => {
    const { model, options, tools } = recordOf(call);
    return { model, ...options, tools };
  });
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names
    .filter((name) => plain(before[name]) !== plain(after[name]))
    .map((name) => [name, before[name], after[name]]);
}

/** The figures of a run, by name. @param {Side} side @param {number} equal the number of calls that the runs have in common */
export function figuresOf({ session, calls }, equal) {
  const { handler, model } = session;
  const sum = sumOf(calls);
  const own = sumOf(calls.slice(equal));
  const used = handler.tokens ?? (sum.used ? { input: sum.input, output: sum.output } : null);
  return {
    took: took(handler, Number.isFinite(model.to) ? model.to : undefined),
    calls: calls.length,
    tools: calls.reduce((count, call) => count + call.tools.length, 0),
    input: used?.input ?? null,
    output: used?.output ?? null,
    cost: handler.cost ?? sum.cost,
    ownCost: equal ? own.cost : null,
    commits: model.lastCommit,
  };
}

/** The places of the last states that differ. @param {Side} one @param {Side} other */
export function stateDifferences(one, other) {
  const [left, right] = [one, other].map(({ session: { model } }) => {
    const states = pathsWithState(model).map((path) => [path, stateAt(model, path, Infinity)]);
    const kept = states.flatMap(([path, state]) =>
      [...state.values()]
        .filter((part) => !part.deleted)
        .map((part) => [[path, part.name].filter(Boolean).join(" / "), part.value]),
    );
    return Object.fromEntries(kept);
  });
  return [...new Set([...Object.keys(left), ...Object.keys(right)])].flatMap((name) =>
    plain(left[name]) === plain(right[name]) ? [] : differences(left[name], right[name], name),
  );
}

/** Loads the parts of calls that were cut. @param {Side} side @param {Call[]} calls */
export async function load({ session }, calls) {
  const cut = calls.filter((call) => hasLarge(recordOf(call)));
  await Promise.all(cut.map((call) => session.whole(call.entry)));
}
