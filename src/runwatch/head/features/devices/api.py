"""Devices under /api/v1: every accelerator, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from runwatch.head.context import Context, Feature
from runwatch.head.features.devices.devices import WITHIN_SECONDS, devices, every
from runwatch.head.features.devices.types import DeviceList, DeviceMetricInfo, DeviceMetricList
from runwatch.head.http.access import CALLER
from runwatch.head.http.answering import answered
from runwatch.head.http.guests import seen
from runwatch.head.http.openapi import JSON, Operation
from runwatch.head.http.parameters import OFFSET, Given, Parameter, limit
from runwatch.views.device_metrics import DEVICE_METRICS
from runwatch.views.devices import ORDERS

_DEVICES: Final = (
    Parameter("run", "string", "only devices of this run, by its id or name", shortest=1),
    Parameter("host", "string", "only devices of these hosts", repeated=True),
    Parameter("sort", "string", "the order", choices=ORDERS, default="hurt"),
    Parameter(
        "within",
        "integer",
        "only devices with a sample in the last so many seconds",
        minimum=1,
        maximum=10**9,
        default=WITHIN_SECONDS,
    ),
    limit(10_000, 100_000),
    OFFSET,
)


class DevicesApi(Feature):
    def __init__(self, context: Context) -> None:
        self._reading = context.reading
        context.metrics.devices = lambda: every(context.reading)

    def operations(self) -> Sequence[Operation]:
        return [
            Operation(
                "/api/v1/devices",
                "Every accelerator now, those with the worst troubles first",
                self._devices,
                _DEVICES,
                {JSON: DeviceList},
                (404, 409),
            ),
            Operation(
                "/api/v1/devices/metrics",
                "The metrics of accelerators: names, units, meanings",
                answered(lambda given: _metrics()),
                (),
                {JSON: DeviceMetricList},
            ),
        ]

    async def _devices(self, request: Request, given: Given) -> Response:
        reading, sees = self._reading, seen(request.scope[CALLER].sight, self._reading)
        return await answered(lambda given: devices(reading, given, sees))(request, given)


def _metrics() -> DeviceMetricList:
    return DeviceMetricList(metrics=[DeviceMetricInfo(*metric) for metric in DEVICE_METRICS])
