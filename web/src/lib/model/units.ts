// Numbers for people: few digits, with the unit.

import type { Num } from "../types";

export const SECOND = 1e9;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** As a number; also from the texts "NaN" and "Infinity". */
export const toNumber = (value: Num | null | undefined): number =>
  value === null || value === undefined ? NaN : typeof value === "number" ? value : Number(value);

/** `4 s`, `2 min 5 s`, `3 h 12 min`, `1 d 4 h`. */
export function duration(ns: number): string {
  if (!Number.isFinite(ns)) return "–";
  const sign = ns < 0 ? "−" : "";
  const size = Math.abs(ns);
  if (size === 0) return "0 s";
  if (size < 1e3) return `${sign}${Math.round(size)} ns`;
  if (size < 1e6) return `${sign}${three(size / 1e3)} µs`;
  if (size < 0.9995e9) return `${sign}${three(size / 1e6)} ms`;
  if (size < 99.95e9) return `${sign}${size < 59.95e9 ? three(size / 1e9) : Math.round(size / 1e9)} s`;
  const seconds = Math.round(size / 1e9);
  if (seconds < 3600) return sign + two(seconds, 60, "min", "s");
  const minutes = Math.round(size / MINUTE);
  if (minutes < 48 * 60) return sign + two(minutes, 60, "h", "min");
  return sign + two(Math.round(size / HOUR), 24, "d", "h");
}

function two(small: number, per: number, big: string, little: string): string {
  const rest = small % per;
  return `${Math.floor(small / per)} ${big}${rest ? ` ${rest} ${little}` : ""}`;
}

const three = (value: number): string => String(Number(value.toPrecision(3)));

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

function scaled(value: number, step: number, prefixes: string[]): [string, string] {
  let at = 0;
  while (Math.abs(value) >= step * 0.9995 && at < prefixes.length - 1) {
    value /= step;
    at += 1;
  }
  return [three(value), prefixes[at] ?? ""];
}

/** `1.2 GiB`. */
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const [number, prefix] = scaled(value, 1024, BINARY);
  return `${number} ${prefix}B`;
}

/** `12,345`; absent is a dash. */
export const count = (value: number | null | undefined): string =>
  value === null || value === undefined || !Number.isFinite(value) ? "–" : Math.round(value).toLocaleString("en-US");

/** 0.4487 as `44.9 %`. */
export const percent = (share: number | null | undefined): string =>
  share === null || share === undefined || !Number.isFinite(share) ? "–" : `${(share * 100).toFixed(1)} %`;

/** A value with about four digits, without a unit. */
export function plain(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e").replace("-", "−").replace("e-", "e−");
  const text = String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

const SYMBOLS: Record<string, string> = {
  seconds: "s", second: "s", sec: "s", bytes: "B", byte: "B", percent: "%", watts: "W", watt: "W",
  celsius: "°C", C: "°C", hertz: "Hz", hz: "Hz", "bytes/s": "B/s", bytes_per_second: "B/s", ratio: "1",
};
const ENDINGS: readonly [RegExp, string][] = [
  [/_bytes_per_second$/, "B/s"], [/_seconds$/, "s"], [/_bytes$/, "B"], [/_percent$/, "%"],
  [/_watts$/, "W"], [/_celsius$/, "°C"], [/_hz$/, "Hz"],
];

/** The unit of a metric as a symbol; without one, the end of its name may say it. */
export function unitOf(metric: string, unit: string): string {
  if (unit) return SYMBOLS[unit] ?? unit;
  return ENDINGS.find(([ending]) => ending.test(metric))?.[1] ?? "";
}

/** A value of a metric in the unit it was recorded in, made readable. */
export function withUnit(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return plain(value);
  switch (unit) {
    case "s":
      return duration(value * SECOND);
    case "B":
      return bytes(value);
    case "B/s":
      return `${bytes(value)}/s`;
    case "%":
      return `${three(value)} %`;
    case "Hz":
    case "W":
    case "FLOP/s": {
      const [number, prefix] = scaled(value, 1000, PREFIXES);
      return `${number} ${prefix}${unit}`;
    }
    case "":
    case "1":
      return plain(value);
    default:
      return `${plain(value)} ${unit}`;
  }
}

/** `gpu_tensor_activity_percent` → `gpu tensor activity`: the unit is shown separately. */
export function spoken(metric: string, unit: string): string {
  const ending = ENDINGS.find(([, symbol]) => symbol === unit)?.[0];
  const short = ending ? metric.replace(ending, "") : metric;
  return /^(gpu|tpu|host|process|step|data|network|disk)/.test(short) ? short.replaceAll("_", " ") : short;
}

/** `3 ranks`, `1 rank`. */
export const several = (number: number, one: string, many = `${one}s`): string =>
  `${count(number)} ${number === 1 ? one : many}`;

/** Two values of a metric, with their unit once if it is the same: `976.8 to 1023 tokens/s`. */
export function between(low: number, high: number, unit: string): string {
  const [first, second] = [withUnit(low, unit), withUnit(high, unit)];
  const [number = "", ...rest] = first.split(/\s/);
  return rest.length === 1 && second.split(/\s/).slice(1).join(" ") === rest[0] ? `${number} to ${second}` : `${first} to ${second}`;
}
