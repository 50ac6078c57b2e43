// Draws on a canvas.  Each function draws one kind of lane; width and height are CSS pixels.

import type { Band, StepDensity } from "./types";
import { bucketAt, type Bar, type Limits } from "./model/bands";
import { classColour, isPale } from "./model/colours";
import { columns, type Pieces } from "./model/columns";
import { meaning } from "./model/intervals";
import type { Cluster, Sort, Tone } from "./model/moments";
import { worst } from "./model/moments";
import { timeTicks } from "./model/ticks";
import { span, toPixel, type Range } from "./model/zoom";
import { SPAN_CLASSES } from "./tables.generated";
import type { Theme } from "./theme.svelte";

export type Context = CanvasRenderingContext2D;
export type Draw = (context: Context, width: number, height: number) => void;

export const FONT = "11px system-ui, 'Segoe UI', Roboto, sans-serif";

export interface Inks {
  ink: string;
  quiet: string;
  line: string;
  paper: string;
  accent: string;
}

export const inks = (theme: Theme): Inks =>
  theme === "dark"
    ? { ink: "#e4e8ee", quiet: "#a3adba", line: "#2c343f", paper: "#14181e", accent: "#7db4f5" }
    : { ink: "#1c2430", quiet: "#596575", line: "#e3e7ec", paper: "#ffffff", accent: "#1f63b0" };

const TONES: Record<Theme, Record<Tone, string>> = {
  light: { bad: "#b8322a", warn: "#b57400", good: "#22794f", plain: "#4a5666" },
  dark: { bad: "#f08278", warn: "#e5ad55", good: "#56c490", plain: "#b3bdca" },
};
export const toneColour = (tone: Tone, theme: Theme): string => TONES[theme][tone];

const tickCount = (width: number): number => Math.max(2, Math.floor(width / 95));

export function drawAxis(range: Range, theme: Theme): Draw {
  return (context, width, height) => {
    const { quiet, line } = inks(theme);
    context.font = FONT;
    context.textBaseline = "middle";
    for (const tick of timeTicks(range, tickCount(width))) {
      const x = Math.round(toPixel(tick.at, range, width)) + 0.5;
      context.fillStyle = line;
      context.fillRect(x, height - 5, 1, 5);
      const half = context.measureText(tick.text).width / 2;
      context.fillStyle = quiet;
      context.fillText(tick.text, Math.min(Math.max(x - half, 0), width - 2 * half), height / 2 - 2);
    }
  };
}

export function drawGrid(context: Context, width: number, height: number, range: Range, theme: Theme): void {
  context.fillStyle = inks(theme).line;
  for (const tick of timeTicks(range, tickCount(width))) {
    context.fillRect(Math.round(toPixel(tick.at, range, width)), 0, 1, height);
  }
}

/** Where the time went: solid if one class fills a pixel, else stacked by share. */
export function drawPieces(pieces: Pieces, range: Range, theme: Theme, top = 0, words = true): Draw {
  return (context, width, height) => {
    const size = height - top;
    const runs = columns(pieces, range, Math.max(1, Math.round(width)));
    for (const run of runs) {
      let y = height;
      for (const { name, share } of run.parts) {
        context.fillStyle = classColour(name, theme);
        const part = share * size;
        context.fillRect(run.x, y - part, run.width, part + 0.3);
        y -= part;
      }
    }
    if (!words) return;
    context.font = FONT;
    context.textBaseline = "middle";
    for (const run of runs) {
      const only = run.parts.length === 1 ? run.parts[0] : undefined;
      if (!only || run.width < 48) continue;
      const text = meaning(only.name).title;
      if (context.measureText(text).width > run.width - 10) continue;
      context.fillStyle = theme === "dark" ? "#0b0f14" : onColour(only.name);
      context.fillText(text, run.x + 6, top + size / 2);
    }
  };
}

const onColour = (name: string): string => (isPale(classColour(name, "light")) ? "#14202c" : "#ffffff");

export interface AttemptMark extends Range {
  text: string;
}

export function drawAttempts(attempts: readonly AttemptMark[], range: Range, theme: Theme, height: number): Draw {
  return (context, width) => {
    const { quiet, ink } = inks(theme);
    context.font = FONT;
    context.textBaseline = "middle";
    for (const one of attempts) {
      const from = Math.max(toPixel(one.start, range, width), 0);
      const to = Math.min(toPixel(one.end, range, width), width);
      if (to <= 0 || from >= width) continue;
      context.fillStyle = quiet;
      context.fillRect(from, height - 2, Math.max(to - from, 1), 1);
      context.fillRect(from, height - 6, 1, 5);
      context.fillRect(Math.max(from, to - 1), height - 6, 1, 5);
      if (context.measureText(one.text).width > to - from - 10) continue;
      context.fillStyle = ink;
      context.fillText(one.text, from + 5, (height - 4) / 2);
    }
  };
}

/** Each kind of mark has its own shape, for those who cannot see colours. */
function shape(context: Context, sort: Sort, x: number, y: number, r: number): void {
  context.beginPath();
  if (sort === "exit" || sort === "stop") {
    context.lineWidth = 2.2;
    context.moveTo(x - r, y - r);
    context.lineTo(x + r, y + r);
    context.moveTo(x + r, y - r);
    context.lineTo(x - r, y + r);
    context.stroke();
  } else if (sort === "start") {
    context.moveTo(x - r * 0.8, y - r);
    context.lineTo(x + r, y);
    context.lineTo(x - r * 0.8, y + r);
    context.fill();
  } else if (sort === "checkpoint") {
    context.moveTo(x, y - r);
    context.lineTo(x + r, y);
    context.lineTo(x, y + r);
    context.lineTo(x - r, y);
    context.fill();
  } else if (sort === "incident" || sort === "device" || sort === "warning") {
    context.moveTo(x, y - r);
    context.lineTo(x + r * 1.1, y + r);
    context.lineTo(x - r * 1.1, y + r);
    context.fill();
  } else if (sort === "end") {
    context.fillRect(x - r * 0.85, y - r * 0.85, r * 1.7, r * 1.7);
  } else {
    context.arc(x, y, r * 0.8, 0, 7);
    context.fill();
  }
}

/** `words`: also write what the worst of a mark's moments is, if there is room. */
export function drawMarks(clusters: readonly Cluster[], theme: Theme, chosen: string, words = false): Draw {
  return (context, width, height) => {
    context.font = FONT;
    context.textBaseline = "middle";
    clusters.forEach(({ x: at, moments }, place) => {
      if (at < -1 || at > width + 1) return;
      const x = Math.min(Math.max(at, 6), width - 6);
      const shown = worst(moments);
      context.fillStyle = context.strokeStyle = toneColour(shown.tone, theme);
      if (moments.some((one) => one.key === chosen)) {
        context.globalAlpha = 0.25;
        context.beginPath();
        context.arc(x, height / 2, 10, 0, 7);
        context.fill();
        context.globalAlpha = 1;
      }
      shape(context, shown.sort, x, height / 2, 5);
      const more = moments.length > 1 ? ` +${moments.length - 1}` : "";
      const next = Math.min(clusters[place + 1]?.x ?? width, width);
      const title = [shown.title + more, shown.title.split(": ")[0] + more, more.trim()].find(
        (text) => x + 10 + context.measureText(text).width < next - 6,
      );
      const text = words ? title : "";
      if (text) context.fillText(text, x + 10, height / 2);
      else if (more) context.fillText(String(moments.length), x + 7, height / 2 - 6);
    });
  };
}

export function drawBoxes(boxes: readonly (Range & { text: string; tone: Tone })[], range: Range, theme: Theme): Draw {
  return (context, width, height) => {
    context.font = FONT;
    context.textBaseline = "middle";
    for (const box of boxes) {
      const from = toPixel(box.start, range, width);
      const to = Math.max(toPixel(box.end, range, width), from + 3);
      if (to < 0 || from > width) continue;
      context.fillStyle = toneColour(box.tone, theme);
      context.globalAlpha = 0.28;
      context.fillRect(from, 3, to - from, height - 6);
      context.globalAlpha = 1;
      context.fillRect(from, 3, 2, height - 6);
      const left = Math.max(from, 0) + 6;
      if (context.measureText(box.text).width < Math.min(to, width) - left - 2) context.fillText(box.text, left, height / 2);
    }
  };
}

export function drawSteps(steps: StepDensity, range: Range, high: number, theme: Theme): Draw {
  return (context, width, height) => {
    drawGrid(context, width, height, range, theme);
    const [pale, strong] = theme === "dark" ? ["#3b5470", "#6aaaf0"] : ["#bcd3ec", "#2c6fbb"];
    const scale = (height - 2) / high;
    for (const [layer, colour] of [[steps.maximum_seconds, pale], [steps.mean_seconds, strong]] as const) {
      context.fillStyle = colour;
      steps.bucket.forEach((bucket, at) => {
        const start = steps.start_ns + bucket * steps.width_ns;
        const from = toPixel(start, range, width);
        const to = toPixel(start + steps.width_ns, range, width);
        const size = Math.min((layer[at] ?? 0) * scale, height);
        if (to > 0 && from < width) context.fillRect(Math.floor(from), height - size, Math.ceil(to) - Math.floor(from), size);
      });
    }
  };
}

/** Draws each step and span; one row per rank. */
export function drawBars(all: readonly Bar[], rows: number, range: Range, theme: Theme): Draw {
  return (context, width, height) => {
    drawGrid(context, width, height, range, theme);
    const size = height / Math.max(rows, 1);
    const room = size > 6 ? 1 : 0;
    context.font = FONT;
    context.textBaseline = "middle";
    for (const bar of all) {
      const from = toPixel(bar.start, range, width);
      const to = toPixel(bar.end, range, width);
      if (to < 0 || from > width) continue;
      const isStep = bar.name === "step";
      context.fillStyle = isStep ? (theme === "dark" ? "#4a86ba" : "#7fb0de") : classColour(bar.useful ? "productive" : (SPAN_CLASSES[bar.name] ?? `custom:${bar.name}`), theme);
      const inset = isStep ? room : room + Math.min(3, size * 0.25);
      context.fillRect(from, bar.row * size + inset, Math.max(to - from - (to - from > 3 ? 1 : 0), 0.7), size - 2 * inset);
      const text = isStep ? `${bar.step ?? ""}` : bar.name;
      if (size >= 12 && text && context.measureText(text).width < to - Math.max(from, 0) - 6) {
        context.fillStyle = theme === "dark" ? "#0b0f14" : "#10202f";
        context.fillText(text, Math.max(from, 0) + 3, (bar.row + 0.5) * size);
      }
    }
  };
}

/** Draws minimum to maximum of all series as an area, their mean as a line; gaps stay gaps. */
export function drawBand(band: Band, range: Range, { low, high }: Limits, colour: string, theme: Theme): Draw {
  return (context, width, height) => {
    drawGrid(context, width, height, range, theme);
    const first = Math.max(0, bucketAt(band, range.start) - 1);
    const last = Math.min(band.mean.length - 1, bucketAt(band, range.end) + 1);
    const y = (value: number): number => height - 4 - ((value - low) / (high - low)) * (height - 8);
    const wide = (band.width_ns / span(range)) * width;
    const x = (at: number): number => toPixel(band.start_ns + at * band.width_ns, range, width);
    context.fillStyle = colour;
    context.globalAlpha = 0.22;
    for (let at = first; at <= last; at += 1) {
      const [least, most] = [band.minimum[at], band.maximum[at]];
      if (least == null || most == null) continue;
      const top = y(most);
      context.fillRect(x(at), top, Math.max(wide, 0.8), Math.max(y(least) - top, 1));
    }
    context.globalAlpha = 1;
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    line(context, band, first, last, (at) => x(at) + wide / 2, y);
  };
}

const JOINED = 0.02;

/** Joins points unless they are several usual distances and 2 % of the width apart. */
function line(context: Context, band: Band, first: number, last: number, x: (at: number) => number, y: (value: number) => number): void {
  const reach = Math.max(3 * usualDistance(band.mean, first, last), (last - first) * JOINED);
  let before = -Infinity;
  context.beginPath();
  for (let at = first; at <= last; at += 1) {
    const value = band.mean[at];
    if (value == null) continue;
    if (at - before <= reach) context.lineTo(x(at), y(value));
    else {
      // A single point must be visible, too.
      context.moveTo(x(at) - 1, y(value));
      context.lineTo(x(at) + 1, y(value));
    }
    before = at;
  }
  context.stroke();
}

function usualDistance(values: readonly (number | null)[], first: number, last: number): number {
  const gaps: number[] = [];
  let before = -1;
  for (let at = first; at <= last; at += 1) {
    if (values[at] == null) continue;
    if (before >= 0) gaps.push(at - before);
    before = at;
  }
  gaps.sort((a, b) => a - b);
  return gaps[gaps.length >> 1] ?? 1;
}

export interface HeatImage extends Range {
  image: CanvasImageSource;
  rows: number;
}

export function drawHeat(heat: HeatImage, range: Range): Draw {
  return (context, width, height) => {
    context.imageSmoothingEnabled = false;
    const from = toPixel(heat.start, range, width);
    const to = toPixel(heat.end, range, width);
    context.drawImage(heat.image, from, 0, to - from, height);
  };
}
