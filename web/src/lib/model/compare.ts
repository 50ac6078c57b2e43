// Several runs side by side: their curves, and the settings that differ.

import type { Configs, Curve } from "../types";
import { leaves, PARTS, toTree, written, type Part } from "./config";
import { positive, smoothed, toLine, type Along } from "./lines";

export interface Setting {
  part: Part;
  path: string;
  /** One text per run; undefined if a run does not have the setting. */
  values: (string | undefined)[];
  differs: boolean;
}

export function settings(configs: readonly (Configs | null)[]): Setting[] {
  return PARTS.flatMap((part) => {
    const each = configs.map(
      (one) => new Map(one ? leaves(toTree(one[part])).map((leaf) => [leaf.path, written(leaf.value)]) : []),
    );
    const paths = [...new Set(each.flatMap((one) => [...one.keys()]))].sort();
    return paths.map((path) => {
      const values = each.map((one) => one.get(path));
      const known = values.filter((_, at) => configs[at]);
      return { part, path, values, differs: new Set(known).size > 1 };
    });
  });
}

export interface Drawing {
  label: string;
  colour: string;
  x: number[];
  y: (number | null)[];
  faint?: boolean;
  /** Where values were NaN or infinite. */
  bad: number[];
}

/** A run's curves in one colour: a line per attempt; the smoothed line over the raw one. */
export function drawings(
  curves: readonly Curve[], label: string, colour: string, along: Along, startNs: number, weight: number, log: boolean,
): Drawing[] {
  return lowestRank(curves).flatMap((curve) => {
    const line = toLine(curve, along, startNs, { ranks: false, attempts: false });
    const fit = (values: (number | null)[]): (number | null)[] => (log ? positive(values) : values);
    const name = curve.attempt && curve.attempt > 1 ? `${label} (attempt ${curve.attempt})` : label;
    const raw: Drawing = { label: name, colour, x: line.x, y: fit(line.y), bad: line.bad };
    if (!weight) return [raw];
    return [{ ...raw, faint: true }, { ...raw, y: fit(smoothed(line.y, weight)), bad: [] }];
  });
}

function lowestRank(curves: readonly Curve[]): Curve[] {
  const lowest = Math.min(...curves.map((curve) => curve.rank));
  return curves.filter((curve) => curve.rank === lowest);
}

/** Metrics, those that most runs have first; then by interest: loss, accuracy, others. */
export function common(lists: readonly (readonly string[])[]): string[] {
  const counts = new Map<string, number>();
  for (const list of lists) for (const metric of new Set(list)) counts.set(metric, (counts.get(metric) ?? 0) + 1);
  const interest = (metric: string): number => (/loss/.test(metric) ? 0 : /acc|reward|perplex|bleu|f1/.test(metric) ? 1 : 2);
  const depth = (metric: string): number => metric.split("/").length;
  return [...counts]
    .sort(([a, x], [b, y]) => y - x || interest(a) - interest(b) || depth(a) - depth(b) || (a < b ? -1 : 1))
    .map(([metric]) => metric);
}
