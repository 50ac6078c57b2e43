// A run's account over time, as stacked bars, and its disruptions in words.

import type { Bucket, Disruption, Goodput, RankShare } from "../types";
import { spentInOrder } from "./intervals";
import { duration } from "./units";

/** Classes that have time anywhere, as they are stacked: productive at the bottom. */
export const stackOrder = (account: Goodput): string[] => spentInOrder(account.spent).map((one) => one.name);

export interface Piece {
  name: string;
  /** Of the bar's height, from the bottom: 0 … 1. */
  low: number;
  high: number;
  ns: number;
}

export interface Bar {
  /** Of the chart's width: 0 … 1. */
  left: number;
  right: number;
  start: number;
  end: number;
  goodput: number | null;
  pieces: Piece[];
}

export function toBars(buckets: readonly Bucket[] | null, order: readonly string[]): Bar[] {
  if (!buckets?.length) return [];
  const first = (buckets[0] as Bucket).start_ns;
  const whole = (buckets[buckets.length - 1] as Bucket).end_ns - first;
  return buckets.map((bucket) => ({
    left: (bucket.start_ns - first) / whole,
    right: (bucket.end_ns - first) / whole,
    start: bucket.start_ns,
    end: bucket.end_ns,
    goodput: bucket.goodput,
    pieces: stacked(bucket, order),
  }));
}

function stacked(bucket: Bucket, order: readonly string[]): Piece[] {
  const total = bucket.end_ns - bucket.start_ns;
  const known = order.filter((name) => (bucket.spent_ns[name] ?? 0) > 0);
  const other = Object.keys(bucket.spent_ns).filter((name) => !order.includes(name));
  let low = 0;
  return [...known, ...other].map((name) => {
    const ns = bucket.spent_ns[name] ?? 0;
    const high = Math.min(low + ns / total, 1);
    const piece = { name, low, high, ns };
    low = high;
    return piece;
  });
}

/** Index of the bar at a place from 0 to 1; -1 if there is none. */
export function barAt(bars: readonly Bar[], place: number): number {
  return bars.findIndex((bar) => bar.left <= place && place < bar.right);
}

/** What a disruption cost in all: work done again, and the time until the first new step. */
export const costNs = (one: Disruption): number => one.wasted_ns + (one.back_ns ?? one.recovery_ns ?? 0);

export function recoveryWords(one: Disruption): string {
  if (one.recovery_ns === null) return "no next attempt yet";
  const next = `next attempt after ${duration(one.recovery_ns)}`;
  return one.back_ns === null ? `${next}, no step yet` : `${next}, stepping after ${duration(one.back_ns)}`;
}

/** Ranks that others waited for, the worst first. */
export function awaited(ranks: readonly RankShare[], most = 8): RankShare[] {
  return ranks
    .filter((rank) => rank.awaited_ns > 0)
    .sort((a, b) => b.awaited_ns - a.awaited_ns)
    .slice(0, most);
}
