// The visible range of time.

export interface Range {
  start: number;
  end: number;
}

/** Nanoseconds; in a narrower range a JavaScript number is too coarse. */
export const NARROWEST = 20_000;

export const span = (range: Range): number => range.end - range.start;
export const same = (a: Range, b: Range): boolean => a.start === b.start && a.end === b.end;
export const overlaps = (a: Range, b: Range): boolean => a.start < b.end && b.start < a.end;
export const contains = (outer: Range, inner: Range): boolean => outer.start <= inner.start && inner.end <= outer.end;

/** Inside the whole, and never narrower than NARROWEST. */
export function clamp(range: Range, whole: Range): Range {
  const width = Math.min(Math.max(range.end - range.start, NARROWEST), Math.max(span(whole), NARROWEST));
  const middle = (range.start + range.end) / 2;
  const start = Math.min(Math.max(middle - width / 2, whole.start), Math.max(whole.end - width, whole.start));
  return { start, end: start + width };
}

/** `factor` < 1 zooms in; the time `at` keeps its position. */
export function zoomed(range: Range, factor: number, at: number, whole: Range): Range {
  const width = Math.max(span(range) * factor, NARROWEST);
  const left = ((at - range.start) / span(range)) * width;
  return clamp({ start: at - left, end: at - left + width }, whole);
}

export const panned = (range: Range, by: number, whole: Range): Range =>
  clamp({ start: range.start + by, end: range.end + by }, whole);

/** A bit wider on either side, so that a small move needs no new data. */
export function widened(range: Range, share: number, whole: Range): Range {
  const more = span(range) * share;
  return { start: Math.max(range.start - more, whole.start), end: Math.min(range.end + more, whole.end) };
}

export const toPixel = (time: number, range: Range, width: number): number =>
  ((time - range.start) / span(range)) * width;
export const toTime = (pixel: number, range: Range, width: number): number =>
  range.start + (pixel / width) * span(range);

/** From the address; null if there is none. */
export function parseRange(from: string | undefined, to: string | undefined): Range | null {
  const [start, end] = [Number(from), Number(to)];
  return from && to && Number.isFinite(start) && Number.isFinite(end) && start < end ? { start, end } : null;
}
