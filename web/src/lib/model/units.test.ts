import { describe, expect, it } from "vitest";
import { between, bytes, count, duration, percent, plain, several, spoken, toNumber, unitOf, withUnit } from "./units";

describe("durations", () => {
  it.each([
    [0, "0 s"],
    [12, "12 ns"],
    [1_500, "1.5 µs"],
    [10_767_752, "10.8 ms"],
    [999_900_000, "1 s"],
    [11_051_048_997, "11.1 s"],
    [75e9, "75 s"],
    [125e9, "2 min 5 s"],
    [7200e9, "2 h"],
    [3599.9e9, "1 h"],
    [100 * 3600e9, "4 d 4 h"],
    [-2e9, "−2 s"],
    [NaN, "–"],
  ])("%d ns is %s", (ns, text) => expect(duration(ns)).toBe(text));
});

describe("values", () => {
  it("carries the unit", () => {
    expect(withUnit(0.0123, "s")).toBe("12.3 ms");
    expect(withUnit(1536 * 2 ** 20, "B")).toBe("1.5 GiB");
    expect(withUnit(97.25, "%")).toBe("97.3 %");
    expect(withUnit(1.98e9, "Hz")).toBe("1.98 GHz");
    expect(withUnit(0.009323325, "1")).toBe("0.009323");
    expect(withUnit(61, "°C")).toBe("61 °C");
    expect(withUnit(null, "s")).toBe("–");
    expect(withUnit(NaN, "s")).toBe("NaN");
  });
  it("keeps few digits", () => {
    expect(plain(1234567)).toBe("1.23e6");
    expect(plain(-0.00001)).toBe("−1.00e−5");
    expect(plain(-3.14159)).toBe("−3.142");
    expect(plain(Infinity)).toBe("∞");
  });
  it("counts and shares", () => {
    expect(count(1234567)).toBe("1,234,567");
    expect(count(null)).toBe("–");
    expect(percent(0.4487)).toBe("44.9 %");
    expect(percent(null)).toBe("–");
    expect(bytes(1023.9)).toBe("1 KiB");
    expect(several(1, "rank")).toBe("1 rank");
    expect(several(1200, "step")).toBe("1,200 steps");
  });
  it("reads numbers that JSON has no word for", () => {
    expect(toNumber("-Infinity")).toBe(-Infinity);
    expect(toNumber("NaN")).toBeNaN();
    expect(toNumber(null)).toBeNaN();
  });
});

describe("names of metrics", () => {
  it("leaves out the unit, and users' own names alone", () => {
    expect(spoken("gpu_tensor_activity_percent", "%")).toBe("gpu tensor activity");
    expect(spoken("step_seconds", "s")).toBe("step");
    expect(spoken("my_loss", "")).toBe("my_loss");
  });
});

describe("units", () => {
  it("has one symbol each, from the name if need be", () => {
    expect(unitOf("x", "percent")).toBe("%");
    expect(unitOf("step_seconds", "")).toBe("s");
    expect(unitOf("disk_read_bytes_per_second", "")).toBe("B/s");
    expect(unitOf("loss", "")).toBe("");
    expect(unitOf("loss", "nats")).toBe("nats");
  });
});

describe("ranges", () => {
  it.each([
    [976.8, 1023, "tokens/s", "976.8 to 1023 tokens/s"],
    [0, 3, "", "0 to 3"],
    [1, 2 ** 30, "B", `${withUnit(1, "B")} to ${withUnit(2 ** 30, "B")}`],
    [65, 125, "s", `${withUnit(65, "s")} to ${withUnit(125, "s")}`],
  ])("%d to %d %s", (low, high, unit, said) => {
    expect(between(low, high, unit).replace(/\s/g, " ")).toBe(said.replace(/\s/g, " "));
  });
});
