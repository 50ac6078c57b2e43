// The goodput of several runs together: by group, user or week.

import type { RolledPart, RolledUp } from "../types";
import { EXCLUDED, meaning } from "./intervals";
import { DAY, percent } from "./units";

export const KINDS = ["group", "user", "week"] as const;
export type Kind = (typeof KINDS)[number];
export const isKind = (text: string | undefined): text is Kind => KINDS.includes(text as Kind);

/** How far back, in days; the last is without limit. */
export const SPANS: readonly { key: string; title: string; days: number }[] = [
  { key: "7", title: "7 days", days: 7 },
  { key: "28", title: "4 weeks", days: 28 },
  { key: "all", title: "All time", days: Infinity },
];
export const USUAL_SPAN = "28";

/** The start in nanoseconds since the epoch; undefined for all time. */
export function since(key: string, now: number): number | undefined {
  const days = (SPANS.find((span) => span.key === key) ?? SPANS.find((span) => span.key === USUAL_SPAN))?.days ?? Infinity;
  return Number.isFinite(days) ? now - days * DAY : undefined;
}

export const partName = (part: RolledPart, kind: Kind): string => part.name || `no ${kind}`;

/** Shares of the counted device-hours, by class. */
export function shares(part: Pick<RolledPart, "device_hours" | "counted_device_hours">): Record<string, number> {
  const whole = part.counted_device_hours;
  const counted = Object.entries(part.device_hours).filter(([name]) => name !== EXCLUDED);
  return whole > 0 ? Object.fromEntries(counted.map(([name, hours]) => [name, hours / whole])) : {};
}

export interface Loss {
  name: string;
  title: string;
  share: string;
}

export function loss(part: RolledPart): Loss | null {
  const name = part.largest_loss;
  return name ? { name, title: meaning(name).title, share: percent(shares(part)[name]) } : null;
}

/** How many runs were left out. */
export const leftOut = (sums: RolledUp): number => sums.total - sums.runs.length;
