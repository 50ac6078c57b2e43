// The log of a run as rows of one height: lines, gaps, and tracebacks line by line.

import type { LogEntry } from "../types";
import { bytes, several } from "./units";

export type Kind = "line" | "gap" | "fall" | "trace";

export interface Row {
  kind: Kind;
  entry: LogEntry;
  text: string;
  /** Of a `fall`: whether its traceback follows. */
  open?: boolean;
}

/** More lines than this are not held: the oldest go first. */
export const MOST_HELD = 50_000;

const byTime = (a: LogEntry, b: LogEntry): number => a.time_ns - b.time_ns;

/** Both together, each entry once, in order of time. */
export function merged(held: readonly LogEntry[], more: readonly LogEntry[]): LogEntry[] {
  const known = new Set(held.map((one) => one.id));
  const fresh = more.filter((one) => !known.has(one.id));
  if (!fresh.length) return held as LogEntry[];
  const all = [...held, ...fresh];
  const last = held.at(-1);
  const inOrder = !last || fresh.every((one, at) => one.time_ns >= (at ? fresh[at - 1]!.time_ns : last.time_ns));
  return inOrder ? all : all.sort(byTime);
}

const ECHO_NS = 5e9;

/** The exceptions whose traceback is in the lines that follow: the program printed it, too. */
export function echoed(entries: readonly LogEntry[]): Set<string> {
  const said = new Map<string, number[]>();
  for (const one of entries)
    if (!one.exception) {
      const key = `${one.rank} ${one.text}`;
      said.set(key, [...(said.get(key) ?? []).slice(-20), one.time_ns]);
    }
  const last = (one: LogEntry): string => one.exception?.text.trimEnd().split("\n").at(-1) ?? "";
  const isSaid = (one: LogEntry): boolean =>
    (said.get(`${one.rank} ${last(one)}`) ?? []).some((ns) => ns - one.time_ns > -1e6 && ns - one.time_ns < ECHO_NS);
  return new Set(entries.filter((one) => one.exception && isSaid(one)).map((one) => one.id));
}

/** What a list shows.  The traceback of an exception is open, unless the program printed it, too, or the reader has
 *  changed that (`turned`). */
export function rowsOf(entries: readonly LogEntry[], turned: ReadonlySet<string>): Row[] {
  const printed = entries.some((one) => one.exception) ? echoed(entries) : new Set<string>();
  return entries.flatMap((entry) => {
    const rows: Row[] = [];
    if (entry.left_out_lines || entry.left_out_bytes) rows.push({ kind: "gap", entry, text: gap(entry) });
    if (!entry.exception) {
      if (entry.text || !rows.length) rows.push({ kind: "line", entry, text: entry.text });
      return rows;
    }
    const { thread, text } = entry.exception;
    const where = thread && thread !== "MainThread" ? ` in thread ${thread}` : "";
    const open = printed.has(entry.id) === turned.has(entry.id);
    rows.push({ kind: "fall", entry, text: `uncaught${where}: ${entry.text}`, open });
    if (open)
      rows.push(...text.split("\n").map((line): Row => ({ kind: "trace", entry, text: line })));
    return rows;
  });
}

function gap(entry: LogEntry): string {
  const size = bytes(entry.left_out_bytes);
  if (!entry.left_out_lines) return `${size} of long lines are left out`;
  return `${several(entry.left_out_lines, "line")} (${size}) left out: more than is recorded`;
}

export interface Part {
  text: string;
  hit: boolean;
}

/** The text in parts, those that were searched for marked; small letters match both, as the head does it. */
export function marked(text: string, sought: string): Part[] {
  if (!sought) return [{ text, hit: false }];
  const [inside, what] = sought === sought.toLowerCase() ? [text.toLowerCase(), sought] : [text, sought];
  if (inside.length !== text.length) return [{ text, hit: false }]; // a letter with two small ones
  const parts: Part[] = [];
  let done = 0;
  for (let at = inside.indexOf(what); at >= 0; at = inside.indexOf(what, at + what.length)) {
    if (at > done) parts.push({ text: text.slice(done, at), hit: false });
    parts.push({ text: text.slice(at, at + what.length), hit: true });
    done = at + what.length;
  }
  if (done < text.length || !parts.length) parts.push({ text: text.slice(done), hit: false });
  return parts;
}

export interface Visible {
  first: number;
  last: number;
}

/** The rows that a window shows, and some above and below. */
export function visible(rows: number, rowHeight: number, top: number, height: number, spare = 20): Visible {
  const from = Math.min(top, Math.max(0, rows * rowHeight - height)); // a list that got shorter scrolls a moment later
  const first = Math.max(0, Math.floor(from / rowHeight) - spare);
  return { first, last: Math.min(rows, Math.ceil((from + height) / rowHeight) + spare) };
}

/** The first row at or after a time; the last one if there is none. */
export function rowAt(rows: readonly Row[], timeNs: number): number {
  const at = rows.findIndex((row) => row.entry.time_ns >= timeNs);
  return at < 0 ? Math.max(rows.length - 1, 0) : at;
}
