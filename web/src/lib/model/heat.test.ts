import { describe, expect, it } from "vitest";
import { ramp } from "./colours";
import { columnMean, decoded, painted, valueAt } from "./heat";

const cells = decoded(btoa(String.fromCharCode(0, 1, 255, 128, 0, 255)), 2, 3);

describe("heat maps", () => {
  it("reads values back, and gaps as gaps", () => {
    expect(valueAt(cells, 0, 0, 0, 100)).toBeNull();
    expect(valueAt(cells, 0, 1, 0, 100)).toBe(0);
    expect(valueAt(cells, 0, 2, 0, 100)).toBe(100);
    expect(valueAt(cells, 1, 0, 0, 100)).toBe(50);
    expect(valueAt(cells, 2, 0, 0, 100)).toBeNull();
  });
  it("means only what was read", () => {
    expect(columnMean(cells, 0, 0, 100)).toBe(50);
    expect(columnMean(cells, 1, 0, 100)).toBe(0);
    expect(columnMean(decoded(btoa("\0"), 1, 1), 0, 0, 1)).toBeNull();
  });
  it("paints gaps clear", () => {
    const pixels = painted(cells, ramp("light"));
    expect([pixels[3], pixels[7], pixels[11]]).toEqual([0, 255, 255]);
  });
});
