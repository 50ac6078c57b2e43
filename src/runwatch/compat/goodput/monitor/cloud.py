"""Where a monitor's series go: Cloud Monitoring, in the project that this machine belongs to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.gcp_metrics import GCPMetrics, ValueType
from runwatch.compat.goodput.goodput_utils import (
    GCPOptions,
    get_accelerator_type,
    get_gcp_project_id,
    get_node_zone,
)
from runwatch.exports.cloud_monitoring import Series, Workload
from runwatch.sdk.guard import attempt, logger

ASK_AGAIN_SECONDS: Final = 60.0


class CloudOutlet:
    """Sends a monitor's series; looks up the project and the machine when the first ones come.

    Off Google Cloud, with nothing configured, it stays silent.
    """

    def __init__(
        self,
        job_name: str,
        options: GCPOptions,
        *,
        client: Any = None,
        clock: Clock = system_clock,
    ) -> None:
        self._job_name = job_name
        self._options = replace(options)  # what is found out here is for this job only
        self._client = client
        self._clock = clock
        self._metrics: GCPMetrics | None = None
        self._asked_ns: int | None = None
        self.workload: Workload | None = None
        """None until it is known."""

    @property
    def takes_goodput(self) -> bool:
        return self._options.enable_gcp_goodput_metrics and self._is_ready()

    @property
    def takes_step_times(self) -> bool:
        return self._options.enable_gcp_step_deviation_metrics and self._is_ready()

    def send(self, series: Iterable[Series]) -> None:
        if self._metrics is not None and self.workload is not None:
            finite = (one for one in series if math.isfinite(one.value))
            requests = [
                self.workload.request(one) | {"value_type": ValueType(one.value_type)}
                for one in finite
            ]
            self._metrics.send_metrics(requests)

    def _is_ready(self) -> bool:
        """Asked again from time to time: a pod's metadata service may start after the pod."""
        now = self._clock.mono_ns()
        if self._metrics is None and self._may_ask(now):
            self._asked_ns = now
            self.workload = self.workload or attempt("ask for metadata", None, self._identify)
            if self.workload is not None:
                self._metrics = attempt("reach Google Cloud Monitoring", None, self._connect)
        return self._metrics is not None

    def _may_ask(self, now_ns: int) -> bool:
        return self._asked_ns is None or now_ns - self._asked_ns >= ASK_AGAIN_SECONDS * 1e9

    def _identify(self) -> Workload | None:
        options = self._options
        options.project_id = options.project_id or get_gcp_project_id()
        options.location = options.location or (get_node_zone() if options.project_id else None)
        if not options.project_id or not options.location:
            logger.info("not on Google Cloud and no project given: Cloud Monitoring is left out")
            return None
        options.acc_type = options.acc_type or get_accelerator_type()
        return Workload(
            self._job_name,
            options.location,
            options.replica_id,
            options.acc_type,
            options.cluster_name,
        )

    def _connect(self) -> GCPMetrics:
        return GCPMetrics(str(self._options.project_id), client=self._client, clock=self._clock)
