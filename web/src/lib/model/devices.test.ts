import { describe, expect, test } from "vitest";
import type { DeviceInfo, EventInfo, HeatRow, JsonObject } from "../types";
import { byHost, deviceKey, hostStretches, hurtWords, deviceEventWords, isBad, labelled, level, measure, rowWords, splitKey } from "./devices";

const row = (changed: Partial<HeatRow> = {}): HeatRow => ({
  host: "n1", device: "gpu0", index: "0", rank: 3, devices: 1, last_host: "n1", last_device: "gpu0", ...changed,
});
const device = (host: string, index: string, hurt = ""): DeviceInfo =>
  ({ host, index, device: `gpu${index}`, troubles: hurt ? [{ hurt, words: hurt, since_ns: null }] : [] }) as unknown as DeviceInfo;

test("a device's key can be read back, whatever its host is called", () => {
  expect(splitKey(deviceKey("a/b", "gpu1"))).toEqual({ host: "a/b", device: "gpu1" });
});

describe("a row in words", () => {
  test.each([
    [row(), "n1 gpu0, rank 3"],
    [row({ rank: null }), "n1 gpu0"],
    [row({ devices: 4, last_device: "gpu3" }), "n1 gpu0 – gpu3 (4 devices)"],
    [row({ devices: 4, last_host: "n2", last_device: "gpu1" }), "n1 gpu0 – n2 gpu1 (4 devices)"],
  ])("%#", (given, words) => expect(rowWords(given)).toBe(words));
});

describe("labels of hosts", () => {
  const stretches = hostStretches(["a", "a", "b", "c", "c"].map((host) => ({ host })));
  test("cover the rows of a host", () =>
    expect(stretches).toEqual([{ host: "a", first: 0, count: 2 }, { host: "b", first: 2, count: 1 }, { host: "c", first: 3, count: 2 }]));
  test("are left out where they would overlap", () => {
    expect(labelled(stretches, 10, 15).map((one) => one.host)).toEqual(["a", "b", "c"].slice(0, 2));
    expect(labelled(stretches, 20, 15).map((one) => one.host)).toEqual(["a", "b", "c"]);
  });
});

test("a level is 0 only where nothing was read", () => {
  expect([level(null, 100), level(0, 100), level(50, 100), level(100, 100), level(120, 100), level(5, 0)]).toEqual([0, 1, 128, 255, 255, 1]);
});

test("hosts and devices are in the order of their numbers", () => {
  const found = byHost([device("n10", "1"), device("n2", "10", "silent"), device("n2", "9")]);
  expect(found.map((one) => [one.host, one.devices.map((each) => each.index), one.hurting])).toEqual([["n2", ["9", "10"], 1], ["n10", ["1"], 0]]);
});

test("idleness alone is no trouble", () => {
  expect([isBad(device("a", "0", "idle")), isBad(device("a", "0", "xid")), isBad(device("a", "0"))]).toEqual([false, true, false]);
});

test("what hurts, the worst first", () => {
  expect(hurtWords({ idle: 3, silent: 1, thermal: 0 })).toBe("1 silent, 3 idle");
  expect(hurtWords({})).toBe("");
});

test("an unknown measure is utilisation", () => expect(measure("odd").id).toBe("utilization"));

describe("incidents", () => {
  const event = (kind: string, body: JsonObject): EventInfo => ({ time_ns: 1, kind, step: null, rank: 0, host: "a", journal: "j", body });
  test.each([
    [event("gpu_xid", { device: "gpu1", xid: 31, meaning: "page fault" }), "gpu1 XID 31: page fault"],
    [event("device_lost", { device: "gpu1" }), "gpu1 was lost"],
    [event("collector_stuck", { collector: "nvml" }), "collector nvml hangs in its driver"],
    [event("new_thing", {}), "new thing"],
  ])("%#", (given, words) => expect(deviceEventWords(given)).toBe(words));
});
