// Intervals as pixel columns.  If many fall into one pixel, each gets its share of it: nothing is
// hidden because it is short.

import type { TimelineGoodput } from "../types";
import { span, type Range } from "./zoom";

export interface Pieces {
  classes: readonly string[];
  start: readonly number[];
  end: readonly number[];
  /** The class with most of the piece's time. */
  main: readonly number[];
  /** Nanoseconds by class; empty if all of it is `main`. */
  spent: readonly (readonly number[])[];
}

export interface Column {
  x: number;
  width: number;
  /** Class and share, in the order of the classes; the sum is the covered part of the column. */
  parts: { name: string; share: number }[];
}

export const NOTHING: Pieces = { classes: [], start: [], end: [], main: [], spent: [] };

export function toPieces(goodput: TimelineGoodput | null): Pieces {
  if (!goodput) return NOTHING;
  const { classes, start_ns: start, end_ns: end, class: main, spent_ns: spent } = goodput.intervals;
  return { classes, start, end, main, spent: goodput.intervals.exact ? [] : spent };
}

const SOLID = 0.995;

export function columns(pieces: Pieces, range: Range, width: number): Column[] {
  const size = pieces.classes.length;
  const cells = new Float64Array(width * size);
  const scale = width / span(range);
  for (let at = firstAfter(pieces.end, range.start); at < pieces.start.length; at += 1) {
    const [start, end] = [pieces.start[at] as number, pieces.end[at] as number];
    if (start >= range.end) break;
    const from = Math.max(0, (start - range.start) * scale);
    const to = Math.min(width, (end - range.start) * scale);
    const parts = pieces.spent[at];
    for (let column = Math.floor(from); column < to; column += 1) {
      const covered = Math.min(column + 1, to) - Math.max(column, from);
      if (covered <= 0) continue;
      if (!parts) cells[column * size + (pieces.main[at] as number)]! += covered;
      else for (let one = 0; one < size; one += 1) cells[column * size + one]! += (covered * (parts[one] ?? 0)) / (end - start);
    }
  }
  return runs(cells, pieces.classes, width);
}

/** Joins neighbours of one class into one column. */
function runs(cells: Float64Array, classes: readonly string[], width: number): Column[] {
  const size = classes.length;
  const joined: Column[] = [];
  for (let x = 0; x < width; x += 1) {
    let [total, most] = [0, 0];
    for (let one = 0; one < size; one += 1) {
      total += cells[x * size + one]!;
      if (cells[x * size + one]! > cells[x * size + most]!) most = one;
    }
    if (total < 1e-6) continue;
    const solid = cells[x * size + most]! >= SOLID * total && total > 0.5;
    const last = joined[joined.length - 1];
    if (solid && last && last.parts.length === 1 && last.parts[0]!.name === classes[most] && last.x + last.width === x) {
      last.width += 1;
      continue;
    }
    const parts = solid
      ? [{ name: classes[most] as string, share: 1 }]
      : classes.flatMap((name, one) => (cells[x * size + one]! > 0 ? [{ name, share: cells[x * size + one]! }] : []));
    joined.push({ x, width: 1, parts });
  }
  return joined;
}

/** Index of the first element above `value`; the list is sorted. */
export function firstAfter(sorted: readonly number[], value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as number) <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The piece at a time; -1 if there is none. */
export function pieceAt(pieces: Pieces, time: number): number {
  const at = firstAfter(pieces.end, time);
  return at < pieces.start.length && (pieces.start[at] as number) <= time ? at : -1;
}

export interface Stretch extends Range {
  name: string;
  /** Time of the class in it; may be less than its length. */
  ns: number;
}

const CELLS = 150;
const DENSE = 0.15;
const LEAST = 0.01;

/** The largest stretches of time that was not productive.
 *
 *  Many short waits in a row are one stretch if they take a good part of the time; a few scattered
 *  ones are none. */
export function stretches(pieces: Pieces, range: Range, most: number): Stretch[] {
  const cell = span(range) / CELLS;
  const all: Stretch[] = [];
  pieces.classes.forEach((name, one) => {
    if (name === "productive") return;
    let last: Stretch | null = null;
    for (const part of cellsOf(pieces, one, range, cell)) {
      if (part.ns < cell * DENSE) continue;
      if (last && part.start - last.end <= cell * 2) [last.end, last.ns] = [part.end, last.ns + part.ns];
      else all.push((last = { name, ...part }));
    }
  });
  return all.filter((one) => one.ns >= span(range) * LEAST).sort((a, b) => b.ns - a.ns).slice(0, most);
}

/** How much of one class is in each cell, and from when to when.
 *
 *  Computed from the start of the range: a number since the epoch cannot hold single nanoseconds. */
function cellsOf(pieces: Pieces, one: number, range: Range, cell: number): { start: number; end: number; ns: number }[] {
  const cells: { start: number; end: number; ns: number }[] = [];
  for (let at = firstAfter(pieces.end, range.start); at < pieces.start.length; at += 1) {
    if (pieces.start[at]! >= range.end) break;
    const share = shareOf(pieces, at, one);
    if (!share) continue;
    const end = Math.min(pieces.end[at]!, range.end) - range.start;
    let from = Math.max(pieces.start[at]! - range.start, 0);
    while (from < end) {
      const number = Math.min(Math.floor(from / cell + 1e-9), CELLS - 1);
      const to = number === CELLS - 1 ? end : Math.min(end, (number + 1) * cell);
      const known = cells[number];
      if (known) [known.end, known.ns] = [range.start + to, known.ns + (to - from) * share];
      else cells[number] = { start: range.start + from, end: range.start + to, ns: (to - from) * share };
      from = to;
    }
  }
  return cells.filter(Boolean);
}

function shareOf(pieces: Pieces, at: number, one: number): number {
  const parts = pieces.spent[at];
  if (!parts) return pieces.main[at] === one ? 1 : 0;
  return (parts[one] ?? 0) / (pieces.end[at]! - pieces.start[at]!);
}

function within(pieces: Pieces, at: number, width: number): [string, number][] {
  const parts = pieces.spent[at];
  const name = (one: number): string => pieces.classes[one] ?? "";
  if (!parts) return [[name(pieces.main[at] as number), width]];
  const whole = (pieces.end[at] as number) - (pieces.start[at] as number);
  return parts.map((ns, one) => [name(one), (ns * width) / whole]);
}

/** Nanoseconds of a range by class: productive first, then the largest. */
export function accountOf(pieces: Pieces, range: Range): [string, number][] {
  const sums = new Map<string, number>();
  for (let at = firstAfter(pieces.end, range.start); at < pieces.start.length; at += 1) {
    const start = Math.max(pieces.start[at] as number, range.start);
    const end = Math.min(pieces.end[at] as number, range.end);
    if (start >= range.end) break;
    for (const [name, ns] of within(pieces, at, end - start)) if (ns > 0) sums.set(name, (sums.get(name) ?? 0) + ns);
  }
  const lead = ([name, ns]: [string, number]): number => (name === "productive" ? Infinity : ns);
  return [...sums].sort((a, b) => lead(b) - lead(a));
}
