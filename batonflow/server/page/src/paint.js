// Colours of the page's style for a canvas, and the shapes of the timeline.

import { duration } from "./format.js";
import { ROW } from "./lanes.js";
import { roundStep } from "./scale.js";

/** @type {Record<string, string>} */ let known = {};

/** Drops the cached colours after a change of light and dark. */
export function forgetColours() {
  known = {};
}

/** @param {string} name of a custom property of the page @returns {string} */
export function colour(name) {
  if (!known[name]) {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    known[name] = getComputedStyle(probe).color;
    probe.remove();
  }
  return known[name];
}

/** Makes a canvas fit its place. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px ui-sans-serif, system-ui, sans-serif";
  context.textBaseline = "middle";
  return context;
}

/**
 * @typedef {{x: (time: number) => number, width: number, scale: import("./scale.js").Scale, perPixel: number}} View
 */

/** The places of round times, with their texts. @param {View} view @returns {{x: number, text: string}[]} */
export function marks(view) {
  const { scale, width } = view;
  const step = roundStep(view.perPixel * 90);
  /** @type {{x: number, text: string}[]} */ const found = [];
  let last = -Infinity;
  const first = scale.time(scale.unit(scale.from));
  for (let at = 0, turns = 0; first + at <= scale.to && turns < 4000; at += step, turns++) {
    const gap = scale.gaps.find((one) => first + at > one.from && first + at < one.to);
    if (gap) {
      at = Math.floor((gap.to - first) / step) * step;
      continue;
    }
    const x = view.x(first + at);
    if (x > width) break;
    const crowded = scale.gaps.some((one) => x < view.x(one.from) && x > view.x(one.from) - 48);
    if (x < -1 || x - last < 56 || crowded) continue;
    last = x;
    found.push({ x, text: at === 0 ? "0" : markText(at, step) });
  }
  return found;
}

/** A duration, precise enough to differ from the next one. @param {number} at @param {number} step */
function markText(at, step) {
  const places = Math.ceil(-Math.log10(step));
  return at < 1 || at >= 60 || places < 1 ? duration(at) : `${at.toFixed(Math.min(places, 6))} s`;
}

/** @param {CanvasRenderingContext2D} context @param {View} view @param {number} height @param {boolean} texts */
export function grid(context, view, height, texts) {
  for (const { x, text } of marks(view)) {
    context.fillStyle = colour("line");
    context.fillRect(Math.round(x), texts ? height - 5 : 0, 1, texts ? 5 : height);
    if (!texts) continue;
    context.fillStyle = colour("muted");
    context.fillText(text, x + 4, height / 2);
  }
  for (const gap of view.scale.gaps) {
    const [from, to] = [view.x(gap.from), view.x(gap.to)];
    if (to < 0 || from > view.width) continue;
    context.fillStyle = colour("gap");
    context.fillRect(from, 0, Math.max(1, to - from), height);
    if (!texts) continue;
    const text = duration(gap.to - gap.from);
    const room = context.measureText(text).width;
    if (room > to - from - 4) continue;
    context.fillStyle = colour("muted");
    context.fillText(text, (from + to - room) / 2, height / 2);
  }
}

/**
 * A bar: the running parts, and the waits between them.
 * @param {CanvasRenderingContext2D} context @param {View} view @param {import("./model.js").Attempt} attempt
 * @param {number} y @param {string} tint @param {{selected?: boolean, text?: string, until?: number}} options
 * @returns {boolean} true if it was wide enough to be visible
 */
export function bar(context, view, attempt, y, tint, { selected = false, text = "", until = attempt.end } = {}) {
  const from = view.x(attempt.began);
  const to = Math.max(from + 2, view.x(until));
  if (to < 0 || from > view.width) return false;
  const tone = attempt.state === "failed" || attempt.state === "cancelled" ? colour(attempt.state) : tint;
  const height = ROW - 4;
  for (const stretch of attempt.stretches) {
    const [left, right] = [view.x(stretch.from), view.x(Math.min(stretch.to, until))];
    if (right < 0 || left > view.width) continue;
    if (stretch.wait) waited(context, left, right, y + height / 2);
    else block(context, Math.max(left, -4), Math.min(Math.max(2, right - left), view.width + 8), y, height, tone);
  }
  if (attempt.state === "waiting") waited(context, view.x(attempt.end), to, y + height / 2);
  if (selected) {
    context.strokeStyle = colour("accent");
    context.lineWidth = 2;
    context.strokeRect(from - 1, y - 1, to - from + 2, height + 2);
  }
  // The text is in the longest running part.
  const runs = attempt.stretches
    .filter((one) => !one.wait)
    .map((one) => [view.x(one.from), view.x(Math.min(one.to, until))]);
  const [start, finish] = runs.reduce((most, one) => (one[1] - one[0] > most[1] - most[0] ? one : most), [0, 0]);
  const left = Math.max(start, 0);
  if (text && finish - left > 30) {
    context.save();
    context.beginPath();
    context.rect(left, y, Math.min(finish, view.width) - left - 3, height);
    context.clip();
    context.fillStyle = colour("ink");
    context.fillText(text, left + 7, y + height / 2 + 0.5);
    context.restore();
  }
  return to - from > 3;
}

/** Something that runs. @param {CanvasRenderingContext2D} context */
function block(context, x, wide, y, height, tone) {
  if (wide < 5) {
    context.globalAlpha = 0.7;
    context.fillStyle = tone;
    context.fillRect(x, y, wide, height);
    context.globalAlpha = 1;
    return;
  }
  context.globalAlpha = 0.26;
  context.fillStyle = tone;
  context.beginPath();
  context.roundRect(x, y, wide, height, 3);
  context.fill();
  context.globalAlpha = 1;
  context.beginPath();
  context.roundRect(x, y, 3, height, [3, 0, 0, 3]);
  context.fill();
}

/** Something that waits. @param {CanvasRenderingContext2D} context */
function waited(context, from, to, y) {
  context.strokeStyle = colour("waiting");
  context.lineWidth = 1.5;
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(from, y);
  context.lineTo(to, y);
  context.stroke();
  context.setLineDash([]);
}

/** An arrow from a cause to its effect. @param {CanvasRenderingContext2D} context @param {number[]} from @param {number[]} to */
export function arrow(context, from, to) {
  const [x0, y0, x1, y1] = [...from, ...to];
  const bend = Math.max(14, Math.abs(x1 - x0) / 2);
  context.strokeStyle = colour("accent");
  context.fillStyle = colour("accent");
  context.lineWidth = 1.4;
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 4, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 6, y1 - 3.5);
  context.lineTo(x1 - 6, y1 + 3.5);
  context.fill();
}
