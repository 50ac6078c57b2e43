// Nodes that report, and sessions.

import type { Client, Session } from "../types";
import { duration } from "./units";

/** Silent nodes first, then by name. */
export function clientsInOrder(clients: readonly Client[]): Client[] {
  return [...clients].sort(
    (a, b) => Number(a.healthy) - Number(b.healthy) || a.hostname.localeCompare(b.hostname, "en", { numeric: true }),
  );
}

/** As nanoseconds since the epoch. */
export const seenNs = (client: Client): number => Date.parse(client.last_seen) * 1e6;

export const sessionLength = (session: Session, nowNs: number): string =>
  duration((session.ended_ns ?? nowNs) - session.started_ns);
