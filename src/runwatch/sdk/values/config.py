"""A run's configuration: a dict whose keys are attributes too, and whose changes are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runwatch.sdk.values.plain import config_values


class ConfigDict(dict[str, Any]):
    """`config["x"]`, `config.x` and `config.update(x=1)` all work."""

    __slots__ = ("_on_change",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "_on_change", None)

    def _listen(self, on_change: Callable[[], None] | None) -> None:
        object.__setattr__(self, "_on_change", on_change)

    def _changed(self) -> None:
        on_change: Callable[[], None] | None = self._on_change
        if on_change is not None:
            on_change()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the config has no {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(f"the config has no {name!r}") from None

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self._changed()

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self._changed()

    def __ior__(self, other: Any) -> ConfigDict:  # type: ignore[override, misc]
        self.update(other)
        return self

    def update(self, *args: Any, **kwargs: Any) -> None:
        """From a dict, pairs, a dataclass or a namespace (argparse's, for example)."""
        kwargs.pop("allow_val_change", None)  # wandb's; every value may change here
        given = args[:1] if args and hasattr(args[0], "__iter__") else map(config_values, args[:1])
        super().update(*given, **kwargs)
        self._changed()

    def setdefaults(self, values: Any) -> None:
        """The pairs whose keys are not there yet."""
        self.update({k: v for k, v in config_values(values).items() if k not in self})

    def as_dict(self) -> dict[str, Any]:
        return dict(self)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, *args: Any) -> Any:
        value = super().pop(*args)
        self._changed()
        return value

    def popitem(self) -> tuple[str, Any]:
        pair = super().popitem()
        self._changed()
        return pair

    def clear(self) -> None:
        super().clear()
        self._changed()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return ConfigDict, (dict(self),)  # changes to a copy are not recorded
