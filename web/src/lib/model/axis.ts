// Texts of a value axis: as few digits as keep them different.

import { duration, plain, withUnit } from "./units";

const DECIMAL = ["", "k", "M", "G", "T", "P", "E"];
const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

export function axisTexts(values: readonly (number | null)[], unit: string): string[] {
  const texts = values.map((value) => (value === null ? "" : withUnit(value, unit)));
  const shown = texts.filter(Boolean);
  return new Set(shown).size === shown.length ? texts : finer(values, unit);
}

function finer(values: readonly (number | null)[], unit: string): string[] {
  const known = values.filter((value): value is number => value !== null);
  const largest = Math.max(...known.map(Math.abs));
  const step = Math.min(...known.slice(1).map((value, at) => Math.abs(value - (known[at] as number))).filter((one) => one > 0));
  const binary = unit === "B" || unit === "B/s";
  if (unit === "s" && largest >= 60) return values.map((value) => (value === null ? "" : duration(value * 1e9)));
  const per = binary ? 1024 : 1000;
  const scaled = binary || unit === "W" || unit === "Hz" || unit === "FLOP/s";
  const power = scaled ? Math.min(Math.max(Math.floor(Math.log(largest) / Math.log(per)), 0), DECIMAL.length - 1) : 0;
  const prefix = (binary ? BINARY : DECIMAL)[power] ?? "";
  const digits = Math.min(Math.max(Math.ceil(-Math.log10(step / per ** power) - 1e-6), 0), 12);
  return values.map((value) => {
    if (value === null) return "";
    if (!Number.isFinite(value)) return plain(value);
    const number = (value / per ** power).toFixed(digits).replace("-", "−");
    return unit && unit !== "1" ? `${number} ${prefix}${unit}` : number;
  });
}

/** Steps on an axis: `800`, `12.5k`, `1M`. */
export function stepText(step: number): string {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]] as const) {
    const per = letter === "k" ? 1e3 : size;
    if (Math.abs(step) >= size) return `${Number((step / per).toPrecision(6))}${letter}`;
  }
  return String(Math.round(step));
}
