// Where a run's time went, as consecutive intervals.

import { CLASSES } from "../tables.generated";
import type { Disruption, Intervals, Spent } from "../types";
import { duration, several } from "./units";
import type { Range } from "./zoom";

export interface Interval extends Range {
  name: string;
}

export function toIntervals(intervals: Intervals | null): Interval[] {
  if (!intervals) return [];
  return intervals.name.map((name, at) => ({ name, start: intervals.start_ns[at] ?? 0, end: intervals.end_ns[at] ?? 0 }));
}

/** Index of the interval at a time; -1 if there is none.  Intervals are sorted. */
export function indexAt(intervals: readonly Range[], time: number): number {
  let [low, high] = [0, intervals.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    const interval = intervals[middle] as Range;
    if (time < interval.start) high = middle - 1;
    else if (time >= interval.end) low = middle + 1;
    else return middle;
  }
  return -1;
}

/** The intervals that overlap the range. */
export function within<T extends Range>(intervals: readonly T[], range: Range): T[] {
  let low = 0;
  let high = intervals.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((intervals[middle] as T).end <= range.start) low = middle + 1;
    else high = middle;
  }
  const inside: T[] = [];
  for (let at = low; at < intervals.length && (intervals[at] as T).start < range.end; at += 1) {
    inside.push(intervals[at] as T);
  }
  return inside;
}

interface Meaning {
  title: string;
  what: string;
}

export function meaning(name: string): Meaning {
  const known = CLASSES[name];
  if (known) return { title: known.words, what: known.meaning };
  const own = name.replace(/^custom:/, "");
  return { title: own, what: `A span that the program calls “${own}”.` };
}

/** Time in which a run waits for what it runs on. */
const RECOVERY: ReadonlySet<string> = new Set(["infrastructure_recovery", "scheduling_wait", "pod_startup"]);

/** Sentences that explain an interval by the disruptions around it. */
export function reasons(interval: Interval, disruptions: readonly Disruption[]): string[] {
  return disruptions.flatMap((disruption) => {
    const back = disruption.time_ns + (disruption.back_ns ?? Infinity);
    const after = interval.start < back && interval.end > disruption.time_ns - 1e6;
    if (interval.name === "wasted_progress" && touchesBefore(interval, disruption)) {
      return [`Attempt ${disruption.attempt} stopped (${disruption.cause}); ${several(disruption.lost_steps, "step")} since the last checkpoint were lost, ${duration(disruption.wasted_ns)} of work.`];
    }
    if (RECOVERY.has(interval.name) && after) {
      return [`Attempt ${disruption.attempt} ended: ${disruption.cause}${disruption.hung ? ", after it hung" : ""}. ${recovery(disruption)}`];
    }
    return [];
  });
}

function touchesBefore(interval: Interval, disruption: Disruption): boolean {
  const reach = Math.max(disruption.wasted_ns * 3, 60e9);
  return interval.start < disruption.time_ns + 1e6 && interval.end > disruption.time_ns - reach;
}

function recovery(disruption: Disruption): string {
  if (disruption.recovery_ns === null) return "There is no next attempt yet.";
  const back = disruption.back_ns === null ? "" : `, the first step ${duration(disruption.back_ns)} after`;
  return `The next attempt began ${duration(disruption.recovery_ns)} later${back}.`;
}

export const EXCLUDED = "excluded";

/** The classes that have time: productive first, then the largest, excluded last. */
export function spentInOrder(spent: readonly Spent[]): Spent[] {
  const lead = (one: Spent): number => (one.name === "productive" ? Infinity : one.name === EXCLUDED ? 0 : one.ns);
  return spent.filter((one) => one.ns > 0).sort((a, b) => lead(b) - lead(a));
}
