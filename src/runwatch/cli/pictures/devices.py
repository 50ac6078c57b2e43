"""Devices as a table for the terminal, with as many columns as fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

WIDEST: Final = 200
WIDE: Final = 100
"""From this width on there is room for sentences."""
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
# Each trouble's short name, and its style.
_HURTS: Final[Mapping[str, tuple[str, str]]] = {
    "lost": ("lost", "bold red"),
    "unreadable": ("unreadable", "bold red"),
    "silent": ("silent", "bold red"),
    "xid": ("XID", "red"),
    "thermal": ("too hot", "red"),
    "hardware": ("slowed", "red"),
    "memory_errors": ("bad memory", "magenta"),
    "power": ("power cap", "yellow"),
    "memory_full": ("full", "yellow"),
    "idle": ("idle", "cyan"),
}

Device = dict[str, Any]


class Column(NamedTuple):
    title: str
    width: int
    draw: Callable[[Device, int], Text]
    right: bool = False


def devices(answer: dict[str, Any], width: int) -> RenderableType:
    """`answer` is the API's answer to `/devices`."""
    width = min(width, WIDEST)
    listed: Sequence[Device] = answer["devices"]
    columns = _columns(listed, width)
    lines = [_headline(answer["totals"], width)]
    lines += [line] if (line := _hurting(answer["totals"])) else []
    lines += [Text(""), _heading(columns)]
    lines += [_line(device, columns, answer["time_ns"], width) for device in listed]
    if (more := answer["totals"]["devices"] - len(listed)) > 0:
        lines.append(Text(f"… {more:,} more (--limit, --host, --run)", style="dim"))
    return Group(*lines)


def unreachable(picture: RenderableType, why: str) -> RenderableType:
    return Group(Text(why, style="bold red", no_wrap=True, overflow="ellipsis"), picture)


# ── above the table ────────────────────────────────────────────────────────────────────────────


def _headline(totals: dict[str, Any], width: int) -> Text:
    count, hosts = totals["devices"], totals["hosts"]
    facts = [f"{count:,} device{'s' * (count != 1)} on {hosts:,} host{'s' * (hosts != 1)}"]
    if totals["utilization_percent"] is not None:
        facts.append(f"{totals['utilization_percent']:.0f} % busy")
    if totals["tensor_percent"] is not None:
        facts.append(f"tensor cores {totals['tensor_percent']:.0f} %")
    if totals["memory_total_bytes"]:
        used, total = _bytes(totals["memory_used_bytes"]), _bytes(totals["memory_total_bytes"])
        facts.append(f"{used} of {total}")
    if totals["power_watts"] is not None:
        facts.append(_watts(totals["power_watts"]))
    line = Text(facts[0], style="bold", no_wrap=True, overflow="ellipsis")
    for fact in facts[1:]:
        if len(line) + len(fact) + 3 <= width:
            line.append(f" · {fact}", style="not bold")
    return line


def _hurting(totals: dict[str, Any]) -> Text | None:
    if not totals["hurting"]:
        return None
    line = Text(no_wrap=True, overflow="ellipsis")
    for hurt, count in totals["hurting"].items():
        words, style = _HURTS[hurt]
        line.append(" · " if line else "").append(f"{count:,} {words}", style=style)
    return line


def _heading(columns: Sequence[Column]) -> Text:
    line = Text("  ", style="bold", no_wrap=True, overflow="crop")
    for column in columns:
        align = ">" if column.right else "<"
        line.append(f"{column.title:{align}{column.width}} ")
    return line.append("trouble")


def _line(device: Device, columns: Sequence[Column], now_ns: int, width: int) -> Text:
    mark, style = _mark(device)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{mark} ", style=style)
    for column in columns:
        cell = column.draw(device, column.width)
        cell.truncate(column.width, overflow="ellipsis")
        cell.align("right" if column.right else "left", column.width)
        line.append_text(cell).append(" ")
    line.append_text(_troubles(device, now_ns, brief=width < WIDE))
    if device["state"] == "ended":
        line.stylize("dim")
    line.truncate(width, overflow="ellipsis")
    return line


def _mark(device: Device) -> tuple[str, str]:
    if device["state"] == "ended":
        return "○", "dim"
    if not device["troubles"]:
        return "●", "green"
    hurt = device["troubles"][0]["hurt"]
    mark = "✘" if hurt in ("lost", "unreadable", "silent") else "▲"
    return mark, _HURTS[hurt][1]


def _troubles(device: Device, now_ns: int, *, brief: bool) -> Text:
    line = Text()
    for trouble in device["troubles"]:
        since, (short, style) = trouble["since_ns"], _HURTS[trouble["hurt"]]
        words, colon, why = trouble["words"].partition(":")
        if brief:
            words, colon, why = words if trouble["hurt"] == "xid" else short, "", ""
        line.append(" · " if line else "").append(words, style=style)
        line.append("" if since is None else _since(trouble, now_ns, brief), style=style)
        line.append(colon + why, style="dim")
    if device["state"] == "ended":
        line.append(f"agent ended {_ago(int(device['age_seconds'] * 1e9))} ago")
    return line


def _since(trouble: dict[str, Any], now_ns: int, brief: bool) -> str:
    length = _ago(now_ns - trouble["since_ns"])
    if brief:
        return f" {length}"
    return f" for {length}" if trouble["hurt"] == "silent" else f" {length} ago"


def _ago(ns: int) -> str:
    seconds = max(0, ns) / 1e9
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


# ── columns ────────────────────────────────────────────────────────────────────────────────────


def _columns(listed: Sequence[Device], width: int) -> list[Column]:
    """The most useful columns that fit, in their usual order."""
    wide = width >= WIDE
    bar = 4 if not wide else 5 if width < 150 else 10
    device = min(max([len(_where(d)) for d in listed] + [6]), 24 if wide else 14)
    run = min(max([len(_run_text(d)) for d in listed] + [3]), 20 if wide else 10)
    candidates = [  # from left to right; the lower its number, the sooner a column gets its place
        (0, Column("device", device, _device)),
        (3, Column("run·rank" if wide else "run·rank"[:run], run, _run)),
        (1, Column("busy", bar + 5, _share("utilization_percent", "green"))),
        (2, Column("tensor", bar + 5, _share("tensor_percent", "cyan"))),
        (1, Column("memory", bar + 5, _memory)),
        (8, Column("GB used/all", 11, _memory_sizes, True)),
        (6, Column("DRAM GB/s", 9, _dram, True)),
        (4, Column("power", 11 if width >= 150 else 5, _power, True)),
        (5, Column("°C", 3, _temperature, True)),
        (9, Column("MHz", 5, _clock, True)),
        (10, Column("name", 12, _name)),
        (11, Column("age", 4, _age, True)),
    ]
    room = width - 2 - (11 if not wide else 30 if width < 150 else 40)
    chosen = []
    for place, (_, column) in sorted(enumerate(candidates), key=lambda each: each[1][0]):
        if column.width + 1 <= room and _has_values(column, listed):
            room -= column.width + 1
            chosen.append((place, column))
    return [column for _, column in sorted(chosen, key=lambda each: each[0])]


def _has_values(column: Column, listed: Sequence[Device]) -> bool:
    return any(column.draw(device, column.width).plain.strip(" –") for device in listed)


def _where(device: Device) -> str:
    index = device["index"] or device["device"]
    return f"{device['host']}:{index}"


def _device(device: Device, width: int) -> Text:
    """A long host name loses its beginning: hosts usually differ at the end."""
    where = _where(device)
    return Text(where if len(where) <= width else f"…{where[1 - width :]}", style="bold")


def _run_text(device: Device) -> str:
    return f"{device['run_name']}·{device['rank']}" if device["run"] else ""


def _run(device: Device, width: int) -> Text:
    if not device["run"]:
        return Text("")
    rank = f"·{device['rank']}"
    name = device["run_name"]
    room = max(width - len(rank), 1)
    return Text((name if len(name) <= room else f"{name[: room - 1]}…") + rank)


def _share(name: str, style: str) -> Callable[[Device, int], Text]:
    def draw(device: Device, width: int) -> Text:
        return _bar(device[name], width, style)

    return draw


def _memory(device: Device, width: int) -> Text:
    percent = device["memory_percent"]
    style = "blue" if percent is None or percent < 95 else "yellow"
    return _bar(percent, width, style)


def _bar(percent: float | None, width: int, style: str) -> Text:
    room = width - 5
    if percent is None:
        return Text(f"{'–':>{width}}", style="dim")
    eighths = round(min(max(percent, 0), 100) / 100 * room * 8)
    whole, part = divmod(eighths, 8)
    drawn = "█" * whole + (_EIGHTHS[part] if part else "")
    bar = Text(f"{drawn:{room}}", style=f"{style} on grey23")
    return bar.append(f"{percent:4.0f}%", style="default on default")


def _memory_sizes(device: Device, width: int) -> Text:
    used, total = device["memory_used_bytes"], device["memory_total_bytes"]
    if used is None or total is None:
        return Text("")
    return Text(f"{used / 1e9:.0f} / {total / 1e9:.0f}")


def _dram(device: Device, width: int) -> Text:
    rate = device["dram_bytes_per_second"]
    return Text("" if rate is None else f"{rate / 1e9:,.0f}")


def _power(device: Device, width: int) -> Text:
    watts, limit = device["power_watts"], device["power_limit_watts"]
    if watts is None:
        return Text("")
    if limit is None or width < 11:
        return Text(f"{watts:.0f} W")
    return Text(f"{watts:.0f} / {limit:.0f} W")


def _temperature(device: Device, width: int) -> Text:
    celsius = device["temperature_celsius"]
    if celsius is None:
        return Text("")
    return Text(
        f"{celsius:.0f}", style="red" if celsius >= 85 else "yellow" if celsius >= 80 else ""
    )


def _clock(device: Device, width: int) -> Text:
    hz = device["sm_clock_hz"]
    return Text("" if hz is None else f"{hz / 1e6:.0f}")


def _name(device: Device, width: int) -> Text:
    return Text(device["name"].removeprefix("NVIDIA ").removeprefix("AMD "), style="dim")


def _age(device: Device, width: int) -> Text:
    age = device["age_seconds"]
    return Text("" if age is None else _ago(int(age * 1e9)))


def _bytes(count: float) -> str:
    return f"{count / 1e12:.1f} TB" if count >= 1e12 else f"{count / 1e9:.0f} GB"


def _watts(watts: float) -> str:
    if watts >= 1e6:
        return f"{watts / 1e6:.2f} MW"
    return f"{watts / 1e3:.1f} kW" if watts >= 10_000 else f"{watts:.0f} W"
