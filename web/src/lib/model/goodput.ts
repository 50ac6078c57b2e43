// A run's goodput over time as stacked bars, and its disruptions in words.

import type { Bucket, Disruption, Figures, Goodput, RankShare } from "../types";
import { spentInOrder } from "./intervals";
import { count, duration, percent, several } from "./units";

/** The classes that have time, in the order of the stack: productive at the bottom. */
export const stackOrder = (account: Goodput): string[] => spentInOrder(account.spent).map((one) => one.name);

export type Tone = "good" | "warn" | "bad" | "unknown";

/** The colour of a goodput: green from 80 %, red below half, as on the command line.  None at all is no colour: then
 *  nothing was seen that could be productive. */
export function tone(share: number | null | undefined): Tone {
  if (share === null || share === undefined || !Number.isFinite(share) || share === 0) return "unknown";
  return share >= 0.8 ? "good" : share >= 0.5 ? "warn" : "bad";
}

export interface Piece {
  name: string;
  /** Share of the bar's height, from the bottom: 0 … 1. */
  low: number;
  high: number;
  ns: number;
}

export interface Bar {
  /** Share of the chart's width: 0 … 1. */
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

/** Index of the bar at a position from 0 to 1; -1 if there is none. */
export function barAt(bars: readonly Bar[], place: number): number {
  return bars.findIndex((bar) => bar.left <= place && place < bar.right);
}

/** From the next attempt's start until it steps as usual; an older head knows only its first step. */
function warmUpNs(one: Disruption): number | null {
  if (one.warm_up_ns !== null) return one.warm_up_ns;
  return one.back_ns === null ? null : Math.max(0, one.back_ns - (one.recovery_ns ?? 0));
}

/** The parts of a disruption's cost. */
export function costWords(one: Disruption): string {
  const warmUp = warmUpNs(one);
  return [
    one.hang_ns ? `hang ${duration(one.hang_ns)}` : "",
    one.wasted_ns ? `lost work ${duration(one.wasted_ns)}` : "",
    one.recovery_ns === null ? "no next attempt yet" : `recovery ${duration(one.recovery_ns)}`,
    warmUp !== null ? `warm-up ${duration(warmUp)}` : one.recovery_ns === null ? "" : "no step yet",
  ].filter(Boolean).join(" + ");
}

export interface Fact {
  name: string;
  value: string;
  words: string;
}

/** The figures beside goodput. */
export function facts(account: Goodput, used?: Figures | null): Fact[] {
  const figures = account.figures && withProgram(account.figures, used);
  if (!figures || figures.ettr === null) return [];
  const whole = duration(account.counted_ns + (figures.queued_ns ?? 0));
  const queue = figures.queued_ns === null ? "since it began; its queue is unknown" : `since it was submitted; ${duration(figures.queued_ns)} in the queue`;
  const productive = amount(figures.device_hours["productive"] ?? 0);
  const rows = [
    { name: "ETTR", value: percent(figures.ettr), words: `effective training time ratio: productive, of ${whole} ${queue}` },
    { name: "overall goodput", value: percent(figures.overall_goodput), words: productWords(figures) },
    { name: "device-hours", value: amount(figures.counted_device_hours), words: `counted; ${productive} were productive, on ${holders(figures)}` },
  ];
  if (figures.counted_cost !== null) {
    const lost = figures.counted_cost - (figures.cost?.["productive"] ?? 0);
    rows.push({ name: "cost", value: money(figures.counted_cost), words: `${money(lost)} of it not productive; ${figures.price_per_device_hour} per device-hour` });
  }
  return rows;
}

export function productWords(figures: Figures): string {
  const by = { "": "", mfu: " (MFU)", tensor_activity: " (tensor activity)" }[figures.program_goodput_by];
  const parts = ([["scheduling", figures.scheduling_goodput], ["runtime", figures.runtime_goodput], ["program", figures.program_goodput]] as const)
    .filter(([, share]) => share !== null)
    .map(([name, share]) => `${name} ${percent(share)}`);
  const unknown = figures.unknown.length ? `; ${figures.unknown.join(" and ")} unknown` : "";
  return parts.join(" × ") + by + unknown;
}

function holders(figures: Figures): string {
  if (figures.devices_by === "accelerators") return several(figures.devices, "accelerator");
  if (figures.devices_by === "ranks") return several(figures.devices, "rank");
  return several(figures.devices, "rank or accelerator", "ranks or accelerators");
}

/** Adds the use of accelerators from another request: it costs more, so it is made less often. */
export function withProgram(figures: Figures, used: Figures | null | undefined): Figures {
  if (figures.program_goodput !== null || !used || used.program_goodput === null) return figures;
  const program = used.program_goodput;
  return {
    ...figures,
    program_goodput: program,
    program_goodput_by: used.program_goodput_by,
    overall_goodput: (figures.overall_goodput ?? 1) * program,
    unknown: figures.unknown.filter((name) => name !== "program"),
  };
}

export const amount = (hours: number): string =>
  hours >= 100 ? count(hours) : hours > 0 && hours < 0.0001 ? "< 0.0001" : String(Number(hours.toPrecision(hours < 0.1 ? 2 : 3)));
export const money = (cost: number): string => cost.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** Ranks that others waited for, the worst first. */
export function awaited(ranks: readonly RankShare[], most = 8): RankShare[] {
  return ranks
    .filter((rank) => rank.awaited_ns > 0)
    .sort((a, b) => b.awaited_ns - a.awaited_ns)
    .slice(0, most);
}
