// Columns may be narrower than the time between samples: between two samples the last value holds.

import type { Cells } from "./heat";

/** How many columns apart samples usually are; 1 if every column has one. */
export function usualDistance(cells: Cells): number {
  const counts = new Map<number, number>();
  for (let row = 0; row < cells.rows; row += 1) {
    let last = -1;
    for (let column = 0; column < cells.columns; column += 1) {
      if (!cells.levels[row * cells.columns + column]) continue;
      if (last >= 0) counts.set(column - last, (counts.get(column - last) ?? 0) + 1);
      last = column;
    }
  }
  let total = 0;
  for (const count of counts.values()) total += count;
  // Nearly all samples are that close: the rest are real gaps.
  let seen = 0;
  for (const [distance, count] of [...counts].sort(([a], [b]) => a - b)) {
    seen += count;
    if (seen >= total * 0.9) return distance;
  }
  return 1;
}

/** Fills the usual distances; longer ones stay gaps. */
export function withoutGaps(cells: Cells): Cells {
  const distance = usualDistance(cells);
  if (distance === 1) return cells;
  const reach = Math.ceil(distance * 1.5) - 1;
  const levels = cells.levels.slice();
  for (let row = 0; row < cells.rows; row += 1) {
    let [left, last] = [0, 0];
    for (let at = row * cells.columns; at < (row + 1) * cells.columns; at += 1) {
      const here = levels[at] as number;
      if (here) [left, last] = [reach, here];
      else if (left > 0) {
        levels[at] = last;
        left -= 1;
      }
    }
  }
  return { ...cells, levels };
}
