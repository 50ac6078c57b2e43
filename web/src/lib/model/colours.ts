// One colour per meaning, in either theme.  Neighbours in time also differ in lightness, and no
// information is in the colour alone.

import { CLASSES } from "../tables.generated";
import type { Theme } from "../theme.svelte";

type Pair = readonly [light: string, dark: string];

const SERIES: readonly Pair[] = [
  ["#2c6fbb", "#6aaaf0"],
  ["#c2571a", "#f09a5f"],
  ["#2f8f5b", "#5cc48d"],
  ["#9b3fa0", "#d58adb"],
  ["#8a6d00", "#d9bc4e"],
  ["#c0334d", "#f08296"],
  ["#0b7f8c", "#55c3cf"],
  ["#5d5fb8", "#a3a5ee"],
];

const pick = (pair: Pair, theme: Theme): string => pair[theme === "dark" ? 1 : 0];

export function classColour(name: string, theme: Theme): string {
  const known = CLASSES[name];
  return pick(known ? [known.light, known.dark] : seriesPair(hashed(name)), theme);
}

/** Whether dark text is readable on it. */
export function isPale(colour: string): boolean {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) as [number, number, number];
  return 0.299 * red + 0.587 * green + 0.114 * blue > 148;
}

export const seriesColour = (index: number, theme: Theme): string => pick(seriesPair(index), theme);
const seriesPair = (index: number): Pair => SERIES[index % SERIES.length] as Pair;

function hashed(text: string): number {
  let hash = 0;
  for (let at = 0; at < text.length; at += 1) hash = (hash * 31 + text.charCodeAt(at)) >>> 0;
  return hash;
}

const RAMPS: Record<Theme, readonly (readonly [number, number, number])[]> = {
  // Low values are close to the background, high values stand out, in both themes.
  light: [[236, 241, 247], [171, 201, 228], [88, 146, 201], [33, 94, 158], [11, 46, 94]],
  dark: [[27, 35, 46], [29, 70, 112], [42, 118, 172], [98, 178, 214], [214, 240, 247]],
};

/** Red, green, blue and opacity of 256 levels; level 0 means "no reading" and is transparent. */
export function ramp(theme: Theme): Uint8ClampedArray {
  const stops = RAMPS[theme];
  const rgba = new Uint8ClampedArray(256 * 4);
  for (let level = 1; level < 256; level += 1) {
    const place = ((level - 1) / 254) * (stops.length - 1);
    const at = Math.min(Math.floor(place), stops.length - 2);
    const [a, b] = [stops[at]!, stops[at + 1]!];
    for (let part = 0; part < 3; part += 1) {
      rgba[level * 4 + part] = a[part]! + (b[part]! - a[part]!) * (place - at);
    }
    rgba[level * 4 + 3] = 255;
  }
  return rgba;
}
