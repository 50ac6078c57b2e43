import { describe, expect, it } from "vitest";
import { indexAt, meaning, reasons, spentInOrder, toIntervals, within } from "./intervals";

const three = toIntervals({ exact: true, start_ns: [0, 10, 30], end_ns: [10, 30, 35], name: ["a", "b", "c"] });

describe("finding intervals", () => {
  it("finds the one at a time, ends left out", () => {
    expect([-1, 0, 9, 10, 29, 34, 35].map((time) => indexAt(three, time))).toEqual([-1, 0, 0, 1, 1, 2, -1]);
    expect(indexAt([], 3)).toBe(-1);
  });
  it("finds those in a range", () => {
    expect(within(three, { start: 10, end: 30 }).map((one) => one.name)).toEqual(["b"]);
    expect(within(three, { start: 9, end: 31 }).map((one) => one.name)).toEqual(["a", "b", "c"]);
    expect(within(three, { start: 35, end: 99 })).toEqual([]);
  });
  it("takes an answer without intervals", () => expect(toIntervals(null)).toEqual([]));
});

describe("what and why", () => {
  const crash = {
    attempt: 1, time_ns: 100e9, cause: "rank 1 killed by SIGKILL on vm", hung: false,
    lost_steps: 32, wasted_ns: 336e6, recovery_ns: 2e9, back_ns: 2.1e9, hang_ns: 0, warm_up_ns: null, cost_ns: 2.436e9,
  };
  it("says what stopped the run and what it cost", () => {
    const recovery = { name: "infrastructure_recovery", start: 100e9, end: 102e9 };
    expect(reasons(recovery, [crash])).toEqual([
      "Attempt 1 ended: rank 1 killed by SIGKILL on vm. The next attempt began 2 s later, the first step 2.1 s after.",
    ]);
    const wasted = { name: "wasted_progress", start: 99.6e9, end: 100e9 };
    expect(reasons(wasted, [crash])[0]).toContain("32 steps since the last checkpoint were lost, 336 ms of work");
  });
  it.each(["scheduling_wait", "pod_startup"])("says after what the run had to wait: %s", (name) => {
    expect(reasons({ name, start: 101e9, end: 102e9 }, [crash])[0]).toContain("Attempt 1 ended: rank 1 killed by SIGKILL");
    expect(reasons({ name, start: 20e9, end: 30e9 }, [crash])).toEqual([]);
  });
  it("does not blame what was elsewhere", () => {
    expect(reasons({ name: "infrastructure_recovery", start: 500e9, end: 502e9 }, [crash])).toEqual([]);
    expect(reasons({ name: "productive", start: 100e9, end: 102e9 }, [crash])).toEqual([]);
  });
  it("knows custom spans by their own name", () => {
    expect(meaning("custom:tokenise").title).toBe("tokenise");
    expect(meaning("stall").title).toBe("hang or stall");
    expect(meaning("slow_steps").title).toBe("slow steps");
    expect(meaning("degraded_capacity").title).toBe("degraded capacity");
  });
  it("orders what the time went into", () => {
    const spent = [{ name: "stall", ns: 5, share: 0.5 }, { name: "productive", ns: 1, share: 0.1 }, { name: "evaluation", ns: 0, share: 0 }, { name: "data_loading", ns: 9, share: 0.4 }];
    expect(spentInOrder(spent).map((one) => one.name)).toEqual(["productive", "data_loading", "stall"]);
  });
});
