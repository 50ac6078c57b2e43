// Which rank the others waited for, from the ranks' own numbers.

import type { Curve } from "../types";
import { duration } from "./units";
import { toNumber } from "./units";

export interface RankTotal {
  rank: number;
  host: string;
  seconds: number;
}

/** Sums of a metric in seconds by rank, over all buckets of the curves; the largest first. */
export function totals(curves: readonly Curve[]): RankTotal[] {
  const sums = new Map<number, RankTotal>();
  for (const curve of curves) {
    const sum = curve.mean.reduce<number>((all, mean, at) => {
      const value = toNumber(mean) * (curve.count[at] ?? 0);
      return Number.isFinite(value) ? all + value : all;
    }, 0);
    const known = sums.get(curve.rank);
    if (known) known.seconds += sum;
    else sums.set(curve.rank, { rank: curve.rank, host: curve.host, seconds: sum });
  }
  return [...sums.values()].sort((a, b) => b.seconds - a.seconds);
}

/** A sentence about the rank that stands out, or about all ranks if none does. */
export function sentence(sums: readonly RankTotal[], verb: string): string {
  const [most, ...others] = sums;
  if (!most || most.seconds <= 0) return "";
  const long = duration(most.seconds * 1e9);
  if (!others.length) return `Rank ${most.rank} ${verb} ${long}.`;
  const [high, low] = [others[0]!.seconds, others[others.length - 1]!.seconds];
  if (most.seconds > 2 * high && most.seconds - high > 0.01) {
    const rest = high - low < 0.02 * most.seconds ? duration(high * 1e9) : `${duration(low * 1e9)} to ${duration(high * 1e9)}`;
    return `Rank ${most.rank} on ${most.host} ${verb} ${long}, the others ${rest}.`;
  }
  return `All ranks ${verb} about the same time: ${duration(low * 1e9)} to ${long}.`;
}
