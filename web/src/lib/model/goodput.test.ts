import { describe, expect, test } from "vitest";
import type { Bucket, Disruption, Figures, Goodput } from "../types";
import { awaited, barAt, costWords, facts, productWords, stackOrder, toBars, withProgram, tone } from "./goodput";

const bucket = (start: number, spent: Record<string, number>): Bucket => ({
  start_ns: start,
  end_ns: start + 100,
  goodput: (spent["productive"] ?? 0) / 100,
  spent_ns: spent,
});
const disruption: Disruption = {
  attempt: 1, time_ns: 0, cause: "rank 3 killed", hung: false, lost_steps: 2,
  wasted_ns: 4e9, recovery_ns: 60e9, back_ns: 98e9, hang_ns: 0, warm_up_ns: null, cost_ns: 102e9,
};
const figures: Figures = {
  ettr: 0.5, queued_ns: 90e9, scheduling_goodput: 0.8, runtime_goodput: 0.625, program_goodput: 0.4,
  program_goodput_by: "tensor_activity", overall_goodput: 0.2, unknown: [], devices: 8, devices_by: "accelerators",
  device_hours: { productive: 1.5, stall: 0.5 }, counted_device_hours: 2, price_per_device_hour: 2.5,
  cost: { productive: 3.75, stall: 1.25 }, counted_cost: 5,
};

describe("bars", () => {
  const bars = toBars([bucket(1000, { stall: 25, productive: 75 }), bucket(1100, { odd: 100 })], ["productive", "stall"]);

  test("are stacked in the given order, unknown classes last, and fill the height", () => {
    expect(bars[0]?.pieces).toEqual([
      { name: "productive", low: 0, high: 0.75, ns: 75 },
      { name: "stall", low: 0.75, high: 1, ns: 25 },
    ]);
    expect(bars[1]?.pieces).toEqual([{ name: "odd", low: 0, high: 1, ns: 100 }]);
  });

  test("lie side by side", () => {
    expect(bars.map((bar) => [bar.left, bar.right])).toEqual([[0, 0.5], [0.5, 1]]);
    expect([barAt(bars, 0), barAt(bars, 0.5), barAt(bars, 1)]).toEqual([0, 1, -1]);
  });

  test("none where there is no time", () => expect(toBars(null, [])).toEqual([]));
});

test("productive time is at the bottom, then the largest; what is excluded is on top", () => {
  const spent = [["a", 5], ["excluded", 99], ["productive", 1], ["b", 9], ["none", 0]].map(([name, ns]) => ({
    name: String(name), ns: Number(ns), share: 0,
  }));
  expect(stackOrder({ spent } as unknown as Goodput)).toEqual(["productive", "b", "a", "excluded"]);
});

test("a disruption cost a hang, work done again, and the way back", () => {
  expect(costWords({ ...disruption, hang_ns: 121e9, warm_up_ns: 40e9 })).toBe("hang 2 min 1 s + lost work 4 s + recovery 60 s + warm-up 40 s");
  expect(costWords(disruption)).toBe("lost work 4 s + recovery 60 s + warm-up 38 s");
  expect(costWords({ ...disruption, back_ns: null })).toBe("lost work 4 s + recovery 60 s + no step yet");
  expect(costWords({ ...disruption, wasted_ns: 0, recovery_ns: null, back_ns: null })).toBe("no next attempt yet");
});

describe("figures", () => {
  const told = (changed: Partial<Figures>) => facts({ counted_ns: 360e9, figures: { ...figures, ...changed } } as unknown as Goodput);

  test("have their names beside them", () => {
    expect(told({})).toEqual([
      { name: "ETTR", value: "50.0 %", words: "effective training time ratio: productive, of 7 min 30 s since it was submitted; 90 s in the queue" },
      { name: "overall goodput", value: "20.0 %", words: "scheduling 80.0 % × runtime 62.5 % × program 40.0 % (tensor activity)" },
      { name: "device-hours", value: "2", words: "counted; 1.5 were productive, on 8 accelerators" },
      { name: "cost", value: "5.00", words: "1.25 of it not productive; 2.5 per device-hour" },
    ]);
  });

  test("without a price there is no money", () => {
    expect(told({ price_per_device_hour: null, cost: null, counted_cost: null }).map((one) => one.name)).not.toContain("cost");
  });

  test("what is not known is named", () => {
    const some = { ...figures, scheduling_goodput: null, program_goodput: null, program_goodput_by: "" as const, unknown: ["scheduling", "program"] };
    expect(productWords(some)).toBe("runtime 62.5 %; scheduling and program unknown");
    expect(told({ queued_ns: null })[0]?.words).toBe("effective training time ratio: productive, of 6 min since it began; its queue is unknown");
    expect(told({ ettr: null })).toEqual([]);
    expect(facts({ figures: null } as unknown as Goodput)).toEqual([]);
  });
});

test("only ranks that were waited for, the worst first", () => {
  const rank = (number: number, ns: number) =>
    ({ rank: number, steps: 1, mean_step_ns: 1, awaited_steps: 1, awaited_ns: ns });
  expect(awaited([rank(0, 0), rank(1, 5), rank(2, 9), rank(3, 1)], 2).map((one) => one.rank)).toEqual([2, 1]);
});

describe("the use of accelerators", () => {
  const asked = { ...figures, program_goodput: 0.5, program_goodput_by: "mfu" as const };
  const without = { ...figures, program_goodput: null, program_goodput_by: "" as const, overall_goodput: 0.5, unknown: ["program"] };

  test("is added where it was told another time", () => {
    const whole = withProgram(without, asked);
    expect([whole.program_goodput, whole.program_goodput_by, whole.overall_goodput, whole.unknown]).toEqual([0.5, "mfu", 0.25, []]);
    expect(whole.ettr).toBe(figures.ettr);
  });

  test("stays as it is where it is told, or nobody knows it", () => {
    expect(withProgram(figures, asked)).toBe(figures);
    expect(withProgram(without, null)).toBe(without);
    expect(withProgram(without, without)).toBe(without);
  });
});

test("a goodput is green only if it is good", () => {
  expect([0.97, 0.8, 0.79, 0.5, 0.49, 0.09, 0.001].map(tone)).toEqual(["good", "good", "warn", "warn", "bad", "bad", "bad"]);
  expect([null, undefined, NaN, 0].map(tone)).toEqual(["unknown", "unknown", "unknown", "unknown"]);
});
