// The metrics of a run: searched, sorted and in sections.

import type { PointInfo, SeriesInfo } from "../types";

export interface Metric {
  metric: string;
  unit: string;
  /** Ranks that recorded it, in order. */
  ranks: number[];
  hasSteps: boolean;
  latest: PointInfo | null;
}

export function toMetrics(series: readonly SeriesInfo[]): Metric[] {
  const byName = new Map<string, Metric>();
  for (const one of series) {
    const known = byName.get(one.metric);
    if (!known) {
      byName.set(one.metric, {
        metric: one.metric, unit: one.unit, ranks: [one.rank],
        hasSteps: one.latest?.step != null, latest: one.latest,
      });
      continue;
    }
    if (!known.ranks.includes(one.rank)) known.ranks.push(one.rank);
    known.hasSteps ||= one.latest?.step != null;
    if ((one.latest?.time_ns ?? 0) > (known.latest?.time_ns ?? 0)) known.latest = one.latest;
  }
  for (const metric of byName.values()) metric.ranks.sort((a, b) => a - b);
  return [...byName.values()].sort((a, b) => depth(a.metric) - depth(b.metric) || compare(a.metric, b.metric));
}

/** Plain names come before those in folders. */
const depth = (metric: string): number => (metric.includes("/") ? 1 : 0);

const compare = (a: string, b: string): number => a.localeCompare(b, "en", { numeric: true });

/** Each word must be in the name. */
export function matching<T extends { metric: string }>(metrics: readonly T[], search: string): T[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return metrics.filter((one) => words.every((word) => one.metric.toLowerCase().includes(word)));
}

export interface Section {
  title: string;
  metrics: Metric[];
}

const OWN: readonly (readonly [RegExp, string])[] = [
  [/^process_/, "Processes"],
  [/^(host_|network_|disk_)/, "Hosts"],
];

/** By the prefix before the first slash; a prefix with one metric gets no section of its own. */
export function sections(metrics: readonly Metric[]): Section[] {
  const sizes = new Map<string, number>();
  for (const { metric } of metrics) sizes.set(prefix(metric), (sizes.get(prefix(metric)) ?? 0) + 1);
  const byTitle = new Map<string, Metric[]>([["", []]]);
  for (const one of metrics) {
    const own = OWN.find(([pattern]) => pattern.test(one.metric))?.[1];
    const folder = prefix(one.metric);
    const title = own ?? ((sizes.get(folder) ?? 0) > 1 ? folder : "");
    byTitle.set(title, [...(byTitle.get(title) ?? []), one]);
  }
  const last = (title: string): number => (OWN.some(([, own]) => own === title) ? 1 : 0);
  return [...byTitle]
    .map(([title, members]) => ({ title, metrics: members }))
    .filter((section) => section.metrics.length > 0)
    .sort((a, b) => last(a.title) - last(b.title));
}

const prefix = (metric: string): string => (metric.includes("/") ? (metric.split("/")[0] ?? "") : "");
