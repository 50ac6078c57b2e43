// A heat map's cells: one byte each, 0 for no reading, else 1 … 255 from low to high.

export interface Cells {
  rows: number;
  columns: number;
  levels: Uint8Array;
}

export function decoded(text: string, rows: number, columns: number): Cells {
  const raw = atob(text);
  const levels = new Uint8Array(rows * columns);
  for (let at = 0; at < levels.length && at < raw.length; at += 1) levels[at] = raw.charCodeAt(at);
  return { rows, columns, levels };
}

/** The value of a cell; null without a reading. */
export function valueAt(cells: Cells, row: number, column: number, low: number, high: number): number | null {
  if (row < 0 || row >= cells.rows || column < 0 || column >= cells.columns) return null;
  const level = cells.levels[row * cells.columns + column] ?? 0;
  return level === 0 ? null : low + ((level - 1) / 254) * (high - low);
}

/** An image with a pixel per cell. */
export function painted(cells: Cells, colours: Uint8ClampedArray): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(cells.levels.length * 4);
  const words = new Uint32Array(pixels.buffer);
  const palette = new Uint32Array(colours.buffer, colours.byteOffset, 256);
  for (let at = 0; at < words.length; at += 1) words[at] = palette[cells.levels[at] as number] as number;
  return pixels;
}

/** The mean of a column over the rows that have a reading. */
export function columnMean(cells: Cells, column: number, low: number, high: number): number | null {
  let [sum, count] = [0, 0];
  for (let row = 0; row < cells.rows; row += 1) {
    const value = valueAt(cells, row, column, low, high);
    if (value !== null) [sum, count] = [sum + value, count + 1];
  }
  return count ? sum / count : null;
}
