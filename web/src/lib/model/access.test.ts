import { expect, test } from "vitest";
import type { Access } from "../types";
import { type Deed, seesAll, whyNot } from "./access";

const DEEDS: Deed[] = ["share", "delete", "capture", "stacks", "sessions"];
const full: Access = { level: "full", role: "admin", run: null, projects: [], expires_ns: null, note: "", link: false, login: true };
const may = (access: Access): Deed[] => DEEDS.filter((deed) => !whyNot(access, deed));

test("each role may do what it is for", () => {
  expect(may(full)).toEqual(DEEDS);
  expect(may({ ...full, role: "operate" })).toEqual(["capture", "stacks", "sessions"]);
  expect(may({ ...full, level: "read", role: "view" })).toEqual([]);
});

test("a refusal names the role that is there and the one that is needed", () => {
  expect(whyNot({ ...full, role: "operate" }, "share")).toBe("Your token is for operate. This needs one for admin.");
  expect(whyNot({ ...full, level: "read", role: "view" }, "stacks")).toContain("needs one for operate");
});

test("a token of projects does nothing that is about all runs", () => {
  const admin = { ...full, projects: ["vision", "audio"] };
  expect(may(admin)).toEqual(["delete", "capture", "stacks"]);
  expect(whyNot(admin, "share")).toContain("project vision, audio");
  expect(seesAll(admin)).toBe(false);
  expect(seesAll(full)).toBe(true);
});

test("a link is read-only", () => {
  expect(may({ ...full, level: "read", role: "view", link: true, run: "a" })).toEqual([]);
  expect(whyNot({ ...full, role: "view", link: true }, "share")).toBe("This link is read-only.");
});

test("until a head has told the role, the level decides", () => {
  expect(may({ ...full, role: null })).toEqual(DEEDS);
  expect(may({ ...full, role: null, level: "read" })).toEqual([]);
  expect(seesAll({ ...full, role: null })).toBe(true);
});
