import { expect, test } from "vitest";
import type { Cells } from "./heat";
import { usualDistance, withoutGaps } from "./heatgaps";

const cells = (...rows: number[][]): Cells => ({
  rows: rows.length, columns: rows[0]?.length ?? 0, levels: Uint8Array.from(rows.flat()),
});

test("where every column has a sample nothing is filled", () => {
  const full = cells([1, 2, 3], [4, 0, 0]);
  expect(usualDistance(full)).toBe(1);
  expect([...withoutGaps(full).levels]).toEqual([1, 2, 3, 4, 0, 0]);
});

test("the time between two samples is filled, an outage is not", () => {
  const sparse = cells([9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 9, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 4]);
  expect(usualDistance(sparse)).toBe(2);
  expect([...withoutGaps(sparse).levels].slice(0, 4)).toEqual([9, 9, 8, 8]);
  expect([...withoutGaps(sparse).levels].slice(20)).toEqual([7, 7, 7, 0, 0, 0, 0, 4]);
});

test("what was given is not changed, and nothing runs on into the next row", () => {
  const given = cells([0, 1, 0, 1], [0, 0, 1, 0]);
  expect([...withoutGaps(given).levels]).toEqual([0, 1, 1, 1, 0, 0, 1, 1]);
  expect([...given.levels]).toEqual([0, 1, 0, 1, 0, 0, 1, 0]);
});

test("no samples, no trouble", () => expect(withoutGaps(cells([0, 0])).levels.length).toBe(2));
