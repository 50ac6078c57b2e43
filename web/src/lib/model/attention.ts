// What of a head's health somebody should look at, in words.

import type { Health } from "../types";
import { moment } from "./ticks";

export interface Need {
  what: string;
  todo: string;
}

/** A directory may hold thousands of journals, and all of them may be set aside. */
export const MOST_TOLD = 100;

export function needs(health: Health): Need[] {
  const found: Need[] = [];
  if (health.problem) {
    found.push({
      what: `The head takes no data: ${health.problem}`,
      todo: "Nodes keep what they have. It goes on by itself when that is over.",
    });
  }
  for (const note of health.notes ?? []) found.push({ what: note, todo: todoOf(note) });
  for (const one of health.aside ?? []) {
    found.push({
      what: `Journal ${one.journal} of host ${one.host} is set aside since ${moment(one.since_ns)}: ${one.why}`,
      todo: todoOf(one.why) || "All others go on. It is tried again by itself, or by the next version of Runwatch.",
    });
  }
  const more = found.length - MOST_TOLD;
  if (more <= 0) return found;
  const rest = { what: `${more} more`, todo: "/api/v1/health names them." };
  return [...found.slice(0, MOST_TOLD), rest];
}

function todoOf(note: string): string {
  if (note.includes(" are allowed (")) {
    return "Raise that setting and start the head again, or delete runs.";
  }
  return note.includes("nothing is deleted for a day") ? "Set the head’s clock right if it is wrong." : "";
}

export const title = (count: number): string => `Needs attention: ${count} ${count === 1 ? "thing" : "things"}`;
