import { describe, expect, test } from "vitest";
import type { Frame, Incident, ProcessStacks, StackGroup } from "../types";
import { incidentTimes, incidentTitle, isNote, newest, oddFirst, placeWords, rankWords, stateWords, severityWords } from "./stacks";

const group = (ranks: number[], frames: Frame[] = [{ function: "f", file: "a.py", line: 1 }]): StackGroup => ({
  ranks, text: "", state: "S", thread: "", frames, problems: [],
});
const stack = (rank: number, pid: number, time: number, child = 0): ProcessStacks =>
  ({ rank, pid, host: "a", time_ns: time, child_of: child }) as ProcessStacks;
const incident = (changed: Partial<Incident> = {}): Incident => ({
  id: "i", run: "r", kind: "hang", state: "open", since_ns: 0, detected_ns: 10e9, named_ns: 12e9, closed_ns: null,
  why: "", text: "", confidence: "likely", ranks: [5], rounds: 2, severity: "incident", ...changed,
});

describe("ranks in words", () => {
  test.each([
    [[5], "rank 5"],
    [[4, 0, 1, 2, 3, 6, 7], "ranks 0–4, 6, 7"],
    [[1, 1], "rank 1"],
    [[0, 2, 4], "ranks 0, 2, 4"],
  ])("%o", (ranks, words) => expect(rankWords(ranks)).toBe(words));
});

describe("groups", () => {
  test("begin with those to blame", () => {
    const order = oddFirst([group([0, 1, 2]), group([3, 4]), group([5, 6, 7, 8])], [6]);
    expect(order.map((one) => one.ranks[0])).toEqual([5, 3, 0]);
  });
  test("else with the fewest, and end with who was not seen", () => {
    const order = oddFirst([group([0, 1, 2]), group([9], []), group([3])], []);
    expect(order.map((one) => one.ranks[0])).toEqual([3, 0, 9]);
  });
});

test("of each process the newest look is shown, children after their parents", () => {
  const found = newest([stack(1, 10, 1), stack(0, 7, 3, 5), stack(1, 10, 2), stack(0, 5, 1)]);
  expect(found.map((one) => [one.rank, one.pid, one.time_ns])).toEqual([[0, 5, 1], [0, 7, 3], [1, 10, 2]]);
});

test("a place is short", () => {
  expect(placeWords({ function: "f", file: "/app/train.py", line: 88 })).toBe("train.py:88");
  expect(placeWords({ function: "f", file: "libc.so.6", line: 0, native: true })).toBe("libc.so.6");
  expect(placeWords({ function: "f", file: "", line: 0 })).toBe("");
});

test("a letter that nobody knows is told as it is", () => expect([stateWords("D"), stateWords("?")]).toEqual(["in the kernel", "?"]));

describe("an incident", () => {
  test("has a severity in words", () => {
    expect(["note", "warning", "incident"].map(severityWords)).toEqual(["note", "warning", "alarm"]);
  });
  test("is named by its kind and its ranks", () => {
    expect(incidentTitle(incident())).toBe("Hangs now: rank 5");
    expect(incidentTitle(incident({ state: "closed", ranks: [] }))).toBe("Hang");
    expect(incidentTitle(incident({ kind: "crash", state: "closed", ranks: [1, 2] }))).toBe("Crash: ranks 1, 2");
  });
  test("that is a note is no hang", () => {
    expect(incidentTitle(incident({ severity: "note" }))).toBe("Takes no step: rank 5");
    expect(incidentTitle(incident({ severity: "note", state: "closed" }))).toBe("Took no step: rank 5");
    expect([isNote(incident()), isNote(incident({ severity: "warning" }))]).toEqual([false, false]);
  });
  test("says how long it lasts or lasted", () => {
    expect(incidentTimes(incident(), 30e9)).toBe("for 30 s so far, diagnosed 12 s after the last progress");
    expect(incidentTimes(incident({ closed_ns: 45e9 }), 0)).toBe("lasted 45 s, diagnosed 12 s after the last progress");
  });
});
