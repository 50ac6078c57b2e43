// Nodes that report, and sessions.

import type { Client, Session } from "../types";
import { duration, several } from "./units";

export type NodeState = "reports" | "ended" | "silent";

/** An agent ends by itself when nothing is left to watch on its node: that is no trouble. */
export const nodeState = (client: Client): NodeState =>
  client.ended ? "ended" : client.healthy ? "reports" : "silent";

const ORDER: readonly NodeState[] = ["silent", "reports", "ended"];
const place = (client: Client): number => ORDER.indexOf(nodeState(client));

/** Silent nodes first, then by name; those that ended come last. */
export function clientsInOrder(clients: readonly Client[]): Client[] {
  return [...clients].sort(
    (a, b) => place(a) - place(b) || a.hostname.localeCompare(b.hostname, "en", { numeric: true }),
  );
}

/** All nodes in one line. */
export function nodeWords(clients: readonly Client[]): string {
  const count = (state: NodeState): number => clients.filter((one) => nodeState(one) === state).length;
  const [silent, ended] = [count("silent"), count("ended")];
  const rest = clients.length - silent - ended;
  const words = [
    silent ? `${several(silent, "node")} stopped reporting` : "",
    silent || !rest ? "" : ended ? `${several(rest, "node")} ${rest === 1 ? "reports" : "report"}` : "Every node reports.",
    ended ? `${several(ended, "agent")} ended in order` : "",
  ];
  return words.filter(Boolean).join(" · ");
}

/** As nanoseconds since the epoch. */
export const seenNs = (client: Client): number => Date.parse(client.last_seen) * 1e6;

export const sessionLength = (session: Session, nowNs: number): string =>
  duration((session.ended_ns ?? nowNs) - session.started_ns);
