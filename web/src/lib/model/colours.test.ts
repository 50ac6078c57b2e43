import { describe, expect, it } from "vitest";
import { classColour, ramp, seriesColour } from "./colours";

describe("colours", () => {
  it("gives a class one colour per theme, also one that it does not know", () => {
    expect(classColour("productive", "light")).not.toBe(classColour("productive", "dark"));
    expect(classColour("custom:x", "light")).toBe(classColour("custom:x", "light"));
    expect(classColour("custom:x", "light")).toMatch(/^#/);
  });
  it("goes round", () => expect(seriesColour(0, "dark")).toBe(seriesColour(8, "dark")));
  it("leaves out what was not read, and grows towards much", () => {
    for (const theme of ["light", "dark"] as const) {
      const levels = ramp(theme);
      const weight = (level: number) => levels[level * 4]! + levels[level * 4 + 1]! + levels[level * 4 + 2]!;
      expect(levels[3]).toBe(0);
      expect(levels[7]).toBe(255);
      const [little, much] = [weight(1), weight(255)];
      expect(theme === "light" ? little > much : much > little).toBe(true);
    }
  });
});
