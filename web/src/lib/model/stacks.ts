// Stacks of a run's processes, grouped and sorted by interest.

import type { Frame, Incident, ProcessStacks, StackGroup } from "../types";
import { duration } from "./units";

/** `rank 5`, `ranks 0–4, 6, 7`. */
export function rankWords(ranks: readonly number[]): string {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let at = 0; at < sorted.length; ) {
    let end = at;
    while (end + 1 < sorted.length && sorted[end + 1] === (sorted[end] as number) + 1) end += 1;
    const [first, last] = [sorted[at] as number, sorted[end] as number];
    parts.push(first === last ? `${first}` : end - at === 1 ? `${first}, ${last}` : `${first}–${last}`);
    at = end + 1;
  }
  return `${sorted.length === 1 ? "rank" : "ranks"} ${parts.join(", ")}`;
}

/** `train.py:88`, without the folder. */
export function placeWords(frame: Frame): string {
  const file = frame.file.split("/").pop() ?? frame.file;
  if (!file) return "";
  return frame.line > 0 ? `${file}:${frame.line}` : file;
}

/** Blamed ranks first, then the smallest groups: the ranks that differ are of interest. */
export function oddFirst(groups: readonly StackGroup[], blamed: readonly number[]): StackGroup[] {
  const isBlamed = (group: StackGroup): boolean => group.ranks.some((rank) => blamed.includes(rank));
  const seen = (group: StackGroup): number => (group.frames.length ? 0 : 1);
  return [...groups].sort(
    (a, b) =>
      Number(isBlamed(b)) - Number(isBlamed(a)) || seen(a) - seen(b) || a.ranks.length - b.ranks.length ||
      (a.ranks[0] ?? 0) - (b.ranks[0] ?? 0),
  );
}

/** The newest stacks of each process. */
export function newest(processes: readonly ProcessStacks[]): ProcessStacks[] {
  const latest = new Map<string, ProcessStacks>();
  for (const one of processes) {
    const key = `${one.rank} ${one.host} ${one.pid}`;
    const known = latest.get(key);
    if (!known || one.time_ns >= known.time_ns) latest.set(key, one);
  }
  return [...latest.values()].sort((a, b) => a.rank - b.rank || a.child_of - b.child_of || a.pid - b.pid);
}

const STATES: Record<string, string> = {
  R: "running", S: "sleeping", D: "in the kernel", T: "stopped", t: "being traced", Z: "dead", X: "dead", I: "idle",
};
export const stateWords = (letter: string): string => STATES[letter] ?? letter;

const WAYS: Record<string, string> = {
  outside: "read from outside", asked: "reported by the process itself", signalled: "written on a signal",
  watchdog: "a periodic dump", fault: "written when it crashed",
};
export const wayWords = (how: string): string => WAYS[how] ?? how;

export const CONFIDENCES: Record<string, string> = {
  certain: "certain", likely: "likely", "cannot tell": "unknown who is to blame",
};

/** The API calls the highest severity `incident`; here an incident is the whole case. */
export const severityWords = (severity: string): string => (severity === "incident" ? "alarm" : severity);

/** A note is the lowest severity: no alarm. */
export const isNote = (one: Incident): boolean => one.severity === "note";

export function incidentTitle(one: Incident): string {
  const hang = isNote(one) ? (one.state === "open" ? "Takes no step" : "Took no step") : one.state === "open" ? "Hangs now" : "Hang";
  const what = one.kind === "crash" ? "Crash" : hang;
  return one.ranks.length ? `${what}: ${rankWords(one.ranks)}` : what;
}

/** How long it lasted, and how long the diagnosis took. */
export function incidentTimes(one: Incident, nowNs: number): string {
  const named = one.named_ns > one.since_ns ? `diagnosed ${duration(one.named_ns - one.since_ns)} after the last progress` : "";
  if (one.kind === "crash") return named;
  const lasted =
    one.closed_ns === null ? `for ${duration(nowNs - one.since_ns)} so far` : `lasted ${duration(one.closed_ns - one.since_ns)}`;
  return [lasted, named].filter(Boolean).join(", ");
}
