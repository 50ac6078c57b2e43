// Summaries of traces, and the progress of a capture.

import type { Capture, NewCapture, Operation, ProfileInfo, SessionSummary, Split, TraceSummary } from "../types";
import { rankWords } from "./stacks";
import { duration, several } from "./units";

export interface SplitPart {
  name: "compute" | "communication" | "host" | "idle";
  title: string;
  ns: number;
  share: number;
}

const TITLES: readonly (readonly [SplitPart["name"], string])[] = [
  ["compute", "compute"],
  ["communication", "communication without compute"],
  ["host", "waiting for the host"],
  ["idle", "idle"],
];

export function splitParts(split: Split | null): SplitPart[] {
  if (!split) return [];
  const total = split.compute_ns + split.communication_ns + split.host_ns + split.idle_ns;
  return TITLES.map(([name, title]) => {
    const ns = split[`${name}_ns`];
    return { name, title, ns, share: total ? ns / total : 0 };
  }).filter((part) => part.ns > 0);
}

export interface Top {
  name: string;
  count: number;
  selfNs: number;
  /** Share of all operations of that kind. */
  share: number;
}

/** Sums over all traces of a profile, the longest first. */
export function topOperations(traces: readonly TraceSummary[], which: "device" | "host", most = 10): Top[] {
  const sums = new Map<string, { count: number; selfNs: number }>();
  for (const trace of traces) {
    const operations: readonly Operation[] = which === "device" ? trace.device_operations : trace.host_operations;
    for (const one of operations) {
      const known = sums.get(one.name) ?? { count: 0, selfNs: 0 };
      sums.set(one.name, { count: known.count + one.count, selfNs: known.selfNs + one.self_ns });
    }
  }
  const total = [...sums.values()].reduce((sum, one) => sum + one.selfNs, 0);
  return [...sums]
    .map(([name, one]) => ({ name, ...one, share: total ? one.selfNs / total : 0 }))
    .sort((a, b) => b.selfNs - a.selfNs)
    .slice(0, most);
}

/** Figures of a profile as pairs of name and value; unknown ones are left out. */
export function figures(summary: SessionSummary): [string, string][] {
  const [first] = summary.traces;
  const steps = first?.steps;
  const pairs: [string, string | null][] = [
    ["window", first ? duration(first.window_ns) : null],
    ["steps", steps ? `${steps.count} (${steps.first}–${steps.last}), ${duration(steps.mean_ns)} on average` : null],
    ["device idle", idleWords(summary)],
    ["waits for input", percentOf(first?.input_bound_percent)],
    ["collectives", first?.collective_ns ? duration(first.collective_ns) : null],
    ["captured at the same time", percentOf(summary.windows_overlap_percent)],
    ["slowest", summary.slowest ? `${summary.slowest}, ${duration(summary.slowest_mean_step_ns ?? NaN)} a step` : null],
  ];
  return pairs.filter((pair): pair is [string, string] => pair[1] !== null);
}

const percentOf = (value: number | null | undefined): string | null =>
  value === null || value === undefined ? null : `${value.toFixed(1)} %`;

function idleWords(summary: SessionSummary): string | null {
  const mean = percentOf(summary.device_idle_percent);
  const [least, most] = summary.device_idle_spread ?? [0, 0];
  return mean && summary.traces.length > 1 && most - least > 1 ? `${mean} (${least.toFixed(0)}–${most.toFixed(0)} %)` : mean;
}

/** `0-3, 7` as numbers; null if it is not a list of ranks; empty means all ranks. */
export function parseRanks(text: string): number[] | null {
  const ranks = new Set<number>();
  for (const part of text.split(",").map((one) => one.trim()).filter(Boolean)) {
    const range = /^(\d{1,6})(?:\s*[-–]\s*(\d{1,6}))?$/.exec(part);
    if (!range) return null;
    const [first, last] = [Number(range[1]), Number(range[2] ?? range[1])];
    if (last < first || last - first > 100_000) return null;
    for (let rank = first; rank <= last; rank += 1) ranks.add(rank);
  }
  return [...ranks].sort((a, b) => a - b);
}

export interface CaptureForm {
  hosts: readonly string[];
  ranks: string;
  by: "time" | "steps";
  amount: number;
}

/** The request for a capture, or why the form is not valid. */
export function toRequest(form: CaptureForm): NewCapture | string {
  const ranks = parseRanks(form.ranks);
  if (ranks === null) return `“${form.ranks}” is not a list of ranks, such as 0-3, 7`;
  if (!Number.isFinite(form.amount) || form.amount <= 0) return "The length must be more than zero.";
  return {
    ...(form.hosts.length ? { hosts: [...form.hosts] } : {}),
    ...(ranks.length ? { ranks } : {}),
    ...(form.by === "time" ? { duration_ms: Math.round(form.amount * 1000) } : { steps: Math.round(form.amount) }),
  };
}

export const isOver = (capture: Capture): boolean => capture.state !== "asked" && capture.state !== "running";

/** The progress from 0 to 1, and in words. */
export function progress(capture: Capture, nowNs: number): { share: number; words: string } {
  const all = Math.max(capture.processes.length, 1);
  const over = capture.processes.filter((one) => one.state === "done" || one.state === "failed").length;
  if (isOver(capture)) return { share: 1, words: outcome(capture) };
  const lengthNs = (capture.duration_ms ?? 0) * 1e6;
  if (nowNs < capture.start_ns) return { share: 0.02, words: `begins in ${duration(capture.start_ns - nowNs)}` };
  if (lengthNs && nowNs < capture.start_ns + lengthNs) {
    const share = (nowNs - capture.start_ns) / lengthNs;
    return { share: 0.02 + share * 0.6, words: `capturing, ${duration(lengthNs - (nowNs - capture.start_ns))} left` };
  }
  return { share: lengthNs ? 0.62 + (over / all) * 0.36 : over / all, words: `${over} of ${all} written` };
}

function outcome(capture: Capture): string {
  const done = capture.processes.filter((one) => one.state === "done");
  const failed = capture.processes.filter((one) => one.state === "failed");
  if (!done.length) return "no rank was captured";
  const words = `${several(done.length, "process", "processes")} captured`;
  return failed.length ? `${words}, not ${rankWords(failed.map((one) => one.rank))}` : words;
}

export function profileWords(one: ProfileInfo): string {
  const steps = one.first_step === null ? "" : `steps ${one.first_step}–${one.last_step ?? "…"}`;
  const lasted = one.end_ns === null ? "" : duration(one.end_ns - one.start_ns);
  const where = one.ranks.length ? rankWords(one.ranks) : "";
  const how = one.origin === "demand" ? "on demand" : one.origin === "program" ? "by the program" : "";
  return [steps, lasted, where, one.frameworks.join(", "), how].filter(Boolean).join(" · ");
}
