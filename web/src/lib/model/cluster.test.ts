import { expect, test } from "vitest";
import type { Client, Session } from "../types";
import { clientsInOrder, nodeState, nodeWords, seenNs, sessionLength } from "./cluster";

const client = (hostname: string, healthy: boolean): Client => ({
  client_id: hostname, hostname, gpu_count: 8, healthy, last_seen: "2026-11-15T10:43:18.184806807Z",
});

test("who fell silent comes first, then by the number in the name", () => {
  const order = clientsInOrder([client("n10", true), client("n9", true), client("n11", false)]);
  expect(order.map((one) => one.hostname)).toEqual(["n11", "n9", "n10"]);
});

test("an agent that ended is not one that fell silent", () => {
  const ended = { ...client("n1", false), ended: true };
  expect(nodeState(ended)).toBe("ended");
  expect(nodeWords([ended])).toBe("1 agent ended in order");
  expect(nodeWords([ended, client("n2", true)])).toBe("1 node reports · 1 agent ended in order");
  expect(nodeWords([client("n2", true), client("n3", true)])).toBe("Every node reports.");
  expect(nodeWords([ended, client("n2", false)])).toBe("1 node stopped reporting · 1 agent ended in order");
  expect(clientsInOrder([ended, client("n2", true), client("n3", false)]).map((one) => one.hostname)).toEqual(["n3", "n2", "n1"]);
});

test("a time in words becomes nanoseconds", () => expect(seenNs(client("a", true))).toBe(1794739398184e6));

test("a session that goes on lasts until now", () => {
  const session = { started_ns: 1e9, ended_ns: null } as Session;
  expect(sessionLength(session, 6e9)).toBe("5 s");
  expect(sessionLength({ ...session, ended_ns: 3e9 }, 6e9)).toBe("2 s");
});
