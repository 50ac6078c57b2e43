import { expect, test } from "vitest";
import { axisTexts, stepText } from "./axis";

const GIB = 1024 ** 3;

test.each([
  [[0, 50, 100], "%", ["0 %", "50 %", "100 %"]],
  [[101.6 * GIB, 101.8 * GIB, 102 * GIB], "B", ["101.6 GiB", "101.8 GiB", "102.0 GiB"]],
  [[1.0001, 1.0002], "s", ["1.0001 s", "1.0002 s"]],
  [[10000.5, 10001], "", ["10000.5", "10001.0"]],
  [[1000100, 1000200], "W", ["1.0001 MW", "1.0002 MW"]],
  [[null, 5], "", ["", "5"]],
])("marks differ: %o %s", (values, unit, texts) => expect(axisTexts(values, unit)).toEqual(texts));

test.each([
  [0, "0"],
  [9999, "9999"],
  [200_000, "200k"],
  [12_500, "12.5k"],
  [1_000_000, "1M"],
])("step %i", (step, text) => expect(stepText(step)).toBe(text));
