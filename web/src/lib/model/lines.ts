// Curves of the API as lines to draw: over steps, over time since the start, or over wall time.

import type { Curve } from "../types";
import { toNumber } from "./units";

export const ALONG = ["step", "relative", "wall"] as const;
export type Along = (typeof ALONG)[number];
export const parseAlong = (text: string | undefined): Along => ALONG.find((one) => one === text) ?? "step";

type Y = number | null;

export interface Line {
  label: string;
  /** Lines of one group have one colour: the attempts of a rank. */
  group: string;
  /** Steps, or seconds since the start, or seconds since the epoch. */
  x: number[];
  y: Y[];
  low: Y[];
  high: Y[];
  /** How many values were NaN or infinite. */
  nonfinite: number;
  /** Where they were. */
  bad: number[];
}

export function toLine(curve: Curve, along: Along, startNs: number, several: { ranks: boolean; attempts: boolean }): Line {
  const x = along === "step" ? curve.position : curve.time_ns.map((ns) => (along === "wall" ? ns : ns - startNs) / 1e9);
  return {
    label: label(curve, several),
    group: `${curve.rank} ${curve.host} ${curve.device}`,
    x,
    y: curve.mean.map(finite),
    low: curve.minimum.map(finite),
    high: curve.maximum.map(finite),
    nonfinite: curve.nonfinite.reduce((sum, one) => sum + one, 0),
    bad: x.filter((_, at) => (curve.nonfinite[at] ?? 0) > 0),
  };
}

const finite = (value: Curve["mean"][number]): Y => {
  const number = toNumber(value);
  return Number.isFinite(number) ? number : null;
};

function label(curve: Curve, several: { ranks: boolean; attempts: boolean }): string {
  const words = [
    curve.device ? `${curve.host} ${curve.device}` : several.ranks ? `rank ${curve.rank}` : "",
    several.attempts && curve.attempt !== null ? `attempt ${curve.attempt}` : "",
  ];
  return words.filter(Boolean).join(", ");
}

export function toLines(curves: readonly Curve[], along: Along, startNs: number): Line[] {
  const distinct = (of: (curve: Curve) => unknown): boolean => new Set(curves.map(of)).size > 1;
  const several = { ranks: distinct((one) => one.rank), attempts: distinct((one) => one.attempt) };
  return curves.map((curve) => toLine(curve, along, startNs, several));
}

/** An exponential mean, corrected so that the first points are right; a gap stays a gap. */
export function smoothed(values: readonly Y[], weight: number): Y[] {
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/** For a logarithmic axis: values that are not positive become gaps. */
export const positive = (values: readonly Y[]): Y[] => values.map((value) => (value !== null && value > 0 ? value : null));

/** Several lines over one x axis; `undefined` means that a line has no point there and continues. */
export function aligned(lines: readonly { x: readonly number[]; y: readonly Y[] }[]): [number[], ...(Y | undefined)[][]] {
  const x = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const place = new Map(x.map((value, at) => [value, at]));
  const columns = lines.map((line) => {
    const column: (Y | undefined)[] = new Array<Y | undefined>(x.length).fill(undefined);
    line.x.forEach((value, at) => (column[place.get(value) as number] = line.y[at] ?? null));
    return column;
  });
  return [x, ...columns];
}

/** Places that lie close together as ranges to mark: `[from, to]`, of at most `apart` without a place between. */
export function stretchesOf(places: readonly number[], apart: number): [number, number][] {
  const ranges: [number, number][] = [];
  for (const place of [...places].sort((a, b) => a - b)) {
    const last = ranges[ranges.length - 1];
    if (last && place - last[1] <= apart) last[1] = place;
    else ranges.push([place, place]);
  }
  return ranges;
}

/** Whether two answers draw the same curves. */
export function sameCurves(a: readonly Curve[] | null, b: readonly Curve[]): boolean {
  return a !== null && a.length === b.length && a.every((one, at) => sameCurve(one, b[at] as Curve));
}

function sameCurve(a: Curve, b: Curve): boolean {
  const last = a.position.length - 1;
  return (
    a.series === b.series && a.width === b.width && a.position.length === b.position.length &&
    a.position[0] === b.position[0] && a.position[last] === b.position[last] &&
    a.count[last] === b.count[last] && a.last[last] === b.last[last]
  );
}

export interface Read {
  label: string;
  colour: string;
  value: number;
}

/** All values at one x; of more than `most` only the highest and the lowest. */
export function extremes(values: readonly Read[], most = 3): Read[] {
  if (values.length <= most) return [...values];
  const sorted = [...values].sort((a, b) => b.value - a.value);
  return [sorted[0] as Read, sorted[sorted.length - 1] as Read];
}
