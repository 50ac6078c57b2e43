// The ticks of an axis, and their texts.

import { DAY, HOUR, MINUTE, SECOND, duration } from "./units";
import { span, type Range } from "./zoom";

export interface Tick {
  at: number;
  text: string;
}

const MS = 1e6;
const STEPS = [
  1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5,
  MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS, 200 * MS, 500 * MS,
  SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND,
  MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY,
];

const pad = (value: number, digits = 2): string => String(value).padStart(digits, "0");

/** Ticks of wall time, at most `most`; days begin in the reader's time zone. */
export function timeTicks(range: Range, most: number): Tick[] {
  const step = STEPS.find((size) => span(range) / size <= most) ?? span(range) / most;
  const shift = -new Date(range.start / MS).getTimezoneOffset() * MINUTE;
  const first = Math.ceil((range.start + shift) / step) * step - shift;
  const ticks: Tick[] = [];
  for (let at = first; at <= range.end; at += step) ticks.push({ at, text: tickText(at, step) });
  return ticks;
}

function tickText(ns: number, step: number): string {
  const when = new Date(ns / MS);
  const clock = `${pad(when.getHours())}:${pad(when.getMinutes())}`;
  if (step >= DAY || (step >= HOUR && when.getHours() === 0 && when.getMinutes() === 0)) return day(when);
  if (step >= MINUTE) return clock;
  const seconds = `${clock}:${pad(when.getSeconds())}`;
  if (step >= SECOND) return seconds;
  const digits = step >= 100 * MS ? 1 : step >= 10 * MS ? 2 : step >= MS ? 3 : 6;
  const rest = Math.round((ns % SECOND) / 10 ** (9 - digits));
  return `:${pad(when.getSeconds())}.${pad(rest % 10 ** digits, digits)}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const day = (when: Date): string => `${when.getDate()} ${MONTHS[when.getMonth()] ?? ""}`;

/** `15 Nov 2026 10:43:06`; with milliseconds if `around`, the visible time, is short. */
export function moment(ns: number, around = Infinity): string {
  if (!Number.isFinite(ns)) return "–";
  const when = new Date(ns / MS);
  const clock = `${pad(when.getHours())}:${pad(when.getMinutes())}:${pad(when.getSeconds())}`;
  const fine = around < 2 * MINUTE ? `.${pad(when.getMilliseconds(), 3)}` : "";
  return `${day(when)} ${when.getFullYear()} ${clock}${fine}`;
}

/** The reader's time zone at that time: `CET`, `UTC`, `GMT+1`. */
export function zone(ns: number): string {
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(new Date(ns / MS));
  return parts.find((part) => part.type === "timeZoneName")?.value ?? "";
}

const UTC = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g;

/** The head writes times into its sentences as UTC; this is the same in the reader's zone, with its name. */
export const localTimes = (text: string): string =>
  text.replace(UTC, (time) => {
    const ns = Date.parse(time) * MS;
    return Number.isFinite(ns) ? `${moment(ns)} ${zone(ns)}` : time;
  });

/** Only the time of day, for lists that show the day elsewhere. */
export const timeOfDay = (ns: number, around = Infinity): string => moment(ns, around).split(" ").slice(3).join(" ");

/** `3 min ago`; the day if it is long ago. */
export function ago(ns: number, nowNs: number): string {
  const past = nowNs - ns;
  if (past < 5 * SECOND) return "just now";
  if (past < 2 * DAY) return `${duration(coarse(past))} ago`;
  const when = new Date(ns / MS);
  return past < 300 * DAY ? day(when) : `${day(when)} ${when.getFullYear()}`;
}

function coarse(ns: number): number {
  for (const unit of [HOUR, MINUTE]) if (ns >= 2 * unit) return Math.round(ns / unit) * unit;
  return Math.round(ns / SECOND) * SECOND;
}

/** Ticks of a plain axis between two values, about `most`. */
export function valueTicks(low: number, high: number, most: number): number[] {
  if (!(high > low) || most < 1) return Number.isFinite(low) ? [low] : [];
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((nice) => nice * power >= rough) ?? 10) * power;
  const ticks: number[] = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) {
    ticks.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return ticks;
}
