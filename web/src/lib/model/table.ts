// The list of runs: which are shown, in which order, and which rows are on the screen.

import type { RunInfo, ShownState } from "../types";
import { toNumber } from "./units";

export const STATES: readonly ShownState[] = ["running", "stalled", "completed", "failed", "killed", "lost"];

export interface Criteria {
  text: string;
  states: readonly ShownState[];
  /** A column's name, with `-` in front for descending; `metric:loss` sorts by a value. */
  sort: string;
  grouped: boolean;
  closed: ReadonlySet<string>;
}

export interface GroupItem {
  kind: "group";
  key: string;
  group: string;
  runs: number;
  states: Partial<Record<ShownState, number>>;
}

export interface RunItem {
  kind: "run";
  key: string;
  run: RunInfo;
}

export type Item = GroupItem | RunItem;

export const ended = (run: RunInfo): number => run.ended_ns ?? run.last_ns;

/** The progress from 0 to 1; null if the number of steps is unknown. */
export function progress(run: RunInfo): number | null {
  if (!run.total_steps || run.last_step === null) return null;
  return Math.min(1, (run.last_step + 1) / run.total_steps);
}

export function value(run: RunInfo, metric: string): number | null {
  const known = run.values?.[metric] ?? (run.headline?.metric === metric ? run.headline : undefined);
  return known === undefined ? null : toNumber(known.value);
}

/** Every word must match somewhere; `group:x`, `user:x`, `host:x` and `state:x` look in one field. */
export function matcher(text: string): (run: RunInfo) => boolean {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (run) => words.every((word) => has(run, word));
}

function has(run: RunInfo, word: string): boolean {
  const at = word.indexOf(":");
  const [place, rest] = at > 0 ? [word.slice(0, at), word.slice(at + 1)] : ["", word];
  if (place === "group") return run.group.toLowerCase() === rest;
  if (place === "user") return (run.user ?? "").toLowerCase() === rest;
  if (place === "state") return run.shown_state === rest || run.state === rest;
  if (place === "host") return run.hosts.some((host) => host.toLowerCase().includes(rest));
  return [run.name, run.run, run.group, run.reason, ...run.warnings.map((one) => one.text)].some((text) => text.toLowerCase().includes(word));
}

type Key = number | string | null;

const KEYS: Record<string, (run: RunInfo) => Key> = {
  name: (run) => run.name.toLowerCase(),
  state: (run) => STATES.indexOf(run.shown_state),
  step: (run) => run.last_step,
  goodput: (run) => run.goodput?.share ?? null,
  ranks: (run) => run.ranks,
  devices: (run) => run.devices ?? null,
  started: (run) => run.started_ns,
  took: (run) => ended(run) - run.started_ns,
};

export function ordered(runs: readonly RunInfo[], sort: string): RunInfo[] {
  const [column, sign] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
  const key = column.startsWith("metric:")
    ? (run: RunInfo): Key => value(run, column.slice(7))
    : (KEYS[column] ?? KEYS.started)!;
  const keyed = runs.map((run) => ({ run, key: key(run) }));
  keyed.sort((a, b) => compared(a.key, b.key, sign) || b.run.started_ns - a.run.started_ns || (a.run.run < b.run.run ? -1 : 1));
  return keyed.map((one) => one.run);
}

/** Missing values come last in either direction. */
function compared(a: Key, b: Key, sign: number): number {
  const [gone, also] = [absent(a), absent(b)];
  if (gone || also) return Number(gone) - Number(also);
  return a === b ? 0 : (a as number) < (b as number) ? -sign : sign;
}

const absent = (key: Key): boolean => key === null || (typeof key === "number" && Number.isNaN(key));

export function listed(runs: readonly RunInfo[], criteria: Criteria): Item[] {
  const match = matcher(criteria.text);
  const matches = runs.filter(
    (run) => (!criteria.states.length || criteria.states.includes(run.shown_state)) && match(run),
  );
  const sorted = ordered(matches, criteria.sort);
  if (!criteria.grouped) return sorted.map(asItem);
  const groups = new Map<string, RunInfo[]>();
  for (const run of sorted) {
    const known = groups.get(run.group);
    if (known) known.push(run);
    else groups.set(run.group, [run]);
  }
  return [...groups].flatMap(([group, members]): Item[] => [
    { kind: "group", key: `group:${group}`, group, runs: members.length, states: counted(members) },
    ...(criteria.closed.has(group) ? [] : members.map(asItem)),
  ]);
}

const asItem = (run: RunInfo): RunItem => ({ kind: "run", key: `run:${run.run}`, run });

export function counted(runs: readonly RunInfo[]): Partial<Record<ShownState, number>> {
  const counts: Partial<Record<ShownState, number>> = {};
  for (const run of runs) counts[run.shown_state] = (counts[run.shown_state] ?? 0) + 1;
  return counts;
}

/** A note explains what is shown, and is no alarm. */
export const isWarning = (one: RunInfo["warnings"][number]): boolean => one.weight === "warning";

/** What a person should read first of a run, and whether it is a warning. */
export function remark(run: RunInfo): { text: string; warns: boolean } {
  const warning = run.warnings.find(isWarning);
  // Beside the state, the reason need not repeat it.
  if (run.shown_state === "stalled") return { text: run.reason.replace(/^stalled: /, ""), warns: true };
  if (!warning) return { text: run.reason, warns: false };
  return { text: [warning.text, run.reason].filter(Boolean).join("; "), warns: true };
}

/** The visible rows, with a few more for scrolling. */
export function visible(count: number, rowHeight: number, scrollTop: number, height: number, more = 8): [number, number] {
  const first = Math.max(0, Math.min(Math.floor(scrollTop / rowHeight), count - 1) - more);
  const last = Math.min(count, Math.ceil((scrollTop + height) / rowHeight) + more);
  return [first, Math.max(first, last)];
}

/**
 * Merges news of a run into what is known: a live message may lack fields, and the answer of a list may be older
 * than it.
 */
export function merged(known: RunInfo | undefined, news: RunInfo): RunInfo {
  if (!known) return news;
  const [older, newer] = news.last_ns < known.last_ns ? [news, known] : [known, news];
  return {
    ...older,
    ...newer,
    goodput: news.goodput ?? known.goodput ?? null,
    values: { ...known.values, ...news.values },
  };
}
