// Bands: minimum, mean and maximum of a metric in each bucket of time.

import type { Band, SpanList, StepDensity } from "../types";
import type { Range } from "./zoom";

export const bucketAt = (band: { start_ns: number; width_ns: number }, time: number): number =>
  Math.floor((time - band.start_ns) / band.width_ns);

/** The mean at a time; null if nothing was recorded. */
export const meanAt = (band: Band, time: number): number | null => band.mean[bucketAt(band, time)] ?? null;

export interface Limits {
  low: number;
  high: number;
}

/** The limits of the value axis for a range, with some room so that lines do not touch it. */
export function limits(band: Band, range: Range): Limits {
  const first = Math.max(0, bucketAt(band, range.start));
  const last = Math.min(band.mean.length - 1, bucketAt(band, range.end));
  let [low, high] = [Infinity, -Infinity];
  for (let at = first; at <= last; at += 1) {
    low = Math.min(low, band.minimum[at] ?? Infinity);
    high = Math.max(high, band.maximum[at] ?? -Infinity);
  }
  return padded(low, high, band.unit);
}

export function padded(low: number, high: number, unit: string): Limits {
  if (!(low <= high)) return { low: 0, high: 1 };
  if (unit === "%" && low >= 0 && high <= 100) return { low: 0, high: 100 };
  if (low === high) return low === 0 ? { low: 0, high: 1 } : low > 0 ? { low: 0, high: high * 1.25 } : { low: low * 1.25, high: 0 };
  const room = (high - low) * 0.08;
  return { low: low >= 0 && low < (high - low) * 0.5 ? 0 : low - room, high: high + room };
}

/** The steps in the bucket at a time: their number, mean and longest. */
export function stepsAt(steps: StepDensity, time: number): { count: number; mean: number | null; most: number | null } | null {
  const at = steps.bucket.indexOf(bucketAt(steps, time));
  if (at < 0) return null;
  return { count: steps.count[at] ?? 0, mean: steps.mean_seconds[at] ?? null, most: steps.maximum_seconds[at] ?? null };
}

export interface Bar extends Range {
  row: number;
  name: string;
  step: number | null;
  rank: number;
  /** Productive although it is not a step. */
  useful: boolean;
}

const USEFUL = /\/useful$/;

/** Steps and spans, one row per rank, at most `most` rows.  `until(start)` is the end of a span that has none. */
export function bars(spans: SpanList, until: (start: number) => number, most: number): { rows: number[]; bars: Bar[] } {
  const rows = [...new Set(spans.rank)].sort((a, b) => a - b).slice(0, most);
  const row = new Map(rows.map((rank, at) => [rank, at]));
  const drawn = spans.name.flatMap((name, at): Bar[] => {
    const rank = spans.rank[at] as number;
    const place = row.get(rank);
    if (place === undefined) return [];
    const start = spans.start_ns[at] as number;
    return [{ row: place, name: name.replace(USEFUL, ""), useful: USEFUL.test(name), rank, step: spans.step[at] ?? null, start, end: spans.end_ns[at] ?? until(start) }];
  });
  return { rows, bars: drawn };
}

/** About how many steps are in a range. */
export function stepsIn(steps: StepDensity, range: Range): number {
  let sum = 0;
  steps.bucket.forEach((bucket, at) => {
    const start = steps.start_ns + bucket * steps.width_ns;
    const inside = Math.min(start + steps.width_ns, range.end) - Math.max(start, range.start);
    if (inside > 0) sum += ((steps.count[at] ?? 0) * inside) / steps.width_ns;
  });
  return Math.round(sum);
}
