"""Stand-ins for gcloud, kubectl, ssh and vllm on the PATH: they log how they were called and answer
what they were told to, for what cannot run here.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PROGRAM = """\
#!{python} -ES
import fcntl, json, os, sys, time

home = {home!r}
name = os.path.basename(sys.argv[0])
words = sys.argv[1:]


def calls():
    with open(home + "/calls") as file:
        # The last may be half written: whoever waits for others reads without the lock.
        return [json.loads(line) for line in file if line.endswith("\\n")]


with open(home + "/lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    with open(home + "/rules") as file:
        rules = json.load(file)
    before = calls()
    chosen = -1
    for number, rule in enumerate(rules):
        used = sum(call["rule"] == number for call in before)
        if rule["name"] == name and used < rule["times"] and all(
            any(wanted in word for word in words) for wanted in rule["words"]
        ):
            chosen = number
            break
    with open(home + "/calls", "a") as file:
        file.write(json.dumps({{"name": name, "words": words, "rule": chosen}}) + "\\n")
rule = rules[chosen] if chosen >= 0 else {{"out": "", "err": "", "code": 0, "together": 0}}
deadline = time.monotonic() + 100
while sum(call["rule"] == chosen for call in calls()) < rule["together"]:
    if time.monotonic() > deadline:
        sys.exit("the others did not come")
    time.sleep(0.005)
sys.stdout.write(rule["out"])
sys.stderr.write(rule["err"])
sys.stdout.flush()
while rule.get("hangs"):
    time.sleep(0.01)
sys.exit(rule["code"])
"""


class StandIns:
    """`rule("gcloud", "instances list", out=…)`: the first that fits answers; else nothing, 0."""

    def __init__(self, root: Path, *names: str) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir(parents=True)
        self._rules: list[dict[str, Any]] = []
        (root / "calls").touch()
        self._save()
        text = PROGRAM.format(python=sys.executable, home=str(root))
        for name in names:
            file = self.bin / name
            file.write_text(text)
            file.chmod(0o755)

    def rule(
        self,
        name: str,
        *words: str,
        out: str = "",
        err: str = "",
        code: int = 0,
        times: int = 10**9,
        together: int = 0,
        hangs: bool = False,
    ) -> None:
        """`words` are parts of its arguments; `together`: it ends when so many were called."""
        self._rules.append(
            {"name": name, "words": words, "out": out, "err": err, "code": code, "times": times,
             "together": together, "hangs": hangs}
        )  # fmt: skip
        self._save()

    def _save(self) -> None:
        part = self.root / "rules.part"
        part.write_text(json.dumps(self._rules))
        os.replace(part, self.root / "rules")

    def calls(self, name: str, *words: str) -> list[list[str]]:
        """How it was called, as far as all of `words` are parts of the arguments."""
        *lines, _half = (self.root / "calls").read_text().split("\n")
        found = [json.loads(line) for line in lines]
        return [
            call["words"]
            for call in found
            if call["name"] == name
            and all(any(wanted in word for word in call["words"]) for wanted in words)
        ]

    def count(self) -> int:
        return len((self.root / "calls").read_text().splitlines())
