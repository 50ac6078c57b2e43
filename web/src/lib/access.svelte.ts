// Whether who looks at this page may also act.

import * as api from "./api";
import type { Access } from "./types";

/** A head that does not tell trusts everyone it answers. */
export const access = $state<Access>({
  level: "full",
  role: null,
  run: null,
  projects: [],
  expires_ns: null,
  note: "",
  link: false,
  login: false,
});

let asked: Promise<void> | null = null;

export function learnAccess(): Promise<void> {
  asked ??= api.access().then(
    (found) => void Object.assign(access, found),
    () => {
      asked = null;
    },
  );
  return asked;
}
