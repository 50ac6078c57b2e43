// Problems in a head's health, in words.

import type { Health } from "../types";
import { moment } from "./ticks";

export interface Need {
  what: string;
  todo: string;
}

/** Thousands of journals may be set aside: show only this many. */
export const MOST_SHOWN = 100;

export function needs(health: Health): Need[] {
  const list: Need[] = [];
  if (health.problem) {
    list.push({
      what: `The head accepts no data: ${health.problem}`,
      todo: "Nodes keep their records. The head continues by itself when that is over.",
    });
  }
  for (const note of health.notes ?? []) list.push({ what: note, todo: todoOf(note) });
  for (const one of health.aside ?? []) {
    list.push({
      what: `Journal ${one.journal} of host ${one.host} is set aside since ${moment(one.since_ns)}: ${one.why}`,
      todo: todoOf(one.why) || "Other journals go on. This one is retried, at the latest by the next version of Runwatch.",
    });
  }
  const more = list.length - MOST_SHOWN;
  if (more <= 0) return list;
  const rest = { what: `${more} more`, todo: "/api/v1/health names them." };
  return [...list.slice(0, MOST_SHOWN), rest];
}

function todoOf(note: string): string {
  if (note.includes(" are allowed (")) {
    return "Raise that setting and restart the head, or delete runs.";
  }
  return note.includes("nothing is deleted for a day") ? "Correct the head’s clock if it is wrong." : "";
}

export const title = (count: number): string => `Needs attention: ${count} ${count === 1 ? "thing" : "things"}`;
