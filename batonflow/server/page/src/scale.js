// From time to place on the timeline. Long idle stretches can be compressed.

/** @typedef {{from: number, to: number}} Span */

// A gap is long if it is a large part of the running time, and long for a person too.
const LONG = 0.12;
const NOTICEABLE = 0.1;
const SQUEEZED = 0.045;

/** The running time. @param {Span[]} spans @returns {Span[]} apart from each other, in order */
export function union(spans) {
  /** @type {Span[]} */ const found = [];
  for (const { from, to } of [...spans].sort((one, other) => one.from - other.from)) {
    const last = found.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else found.push({ from, to });
  }
  return found;
}

export class Scale {
  /**
   * @param {number} from @param {number} to wall-clock seconds @param {Span[]} busy when something runs
   * @param {boolean} squeeze true to compress long gaps
   */
  constructor(from, to, busy, squeeze) {
    this.from = from;
    this.to = Math.max(to, from + 1e-6);
    /** @type {Span[]} */ this.gaps = [];
    /** @type {[number, number][]} */ this.knots = [[this.from, 0]];
    const spans = union(busy);
    const total = spans.reduce((sum, span) => sum + span.to - span.from, 0) || this.to - this.from;
    const edges = [this.from, ...spans.flatMap((span) => [span.from, span.to]), this.to];
    let units = 0;
    for (let index = 1; index < edges.length; index++) {
      const length = Math.max(0, edges[index] - edges[index - 1]);
      const idle = index % 2 === 1;
      const short = squeeze && idle && length > Math.max(NOTICEABLE, LONG * total);
      if (short) this.gaps.push({ from: edges[index - 1], to: edges[index] });
      units += short ? SQUEEZED * total : length;
      this.knots.push([edges[index], units]);
    }
    this.length = units || 1;
  }

  /** @param {number} time */
  unit(time) {
    return along(this.knots, time, 0, 1);
  }

  /** @param {number} unit */
  time(unit) {
    return along(this.knots, unit, 1, 0);
  }
}

/** The value on a line through knots. @param {[number, number][]} knots @param {number} at @param {0 | 1} by @param {0 | 1} to */
function along(knots, at, by, to) {
  let [low, high] = [0, knots.length - 1];
  if (at <= knots[0][by]) return knots[0][to];
  if (at >= knots[high][by]) return knots[high][to];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (knots[middle][by] <= at) low = middle;
    else high = middle;
  }
  const [one, other] = [knots[low], knots[high]];
  const part = other[by] > one[by] ? (at - one[by]) / (other[by] - one[by]) : 0;
  return one[to] + part * (other[to] - one[to]);
}

const STEPS = [1, 2, 5];
const LARGE = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

/** A round step of time of at least so many seconds. @param {number} least */
export function roundStep(least) {
  if (least > 10) return LARGE.find((step) => step >= least) ?? 604800;
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9)));
  return (STEPS.find((step) => step * power >= least) ?? 10) * power;
}
