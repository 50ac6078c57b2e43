"""The monitor of an elastic job: three more kinds of badput, and how many slices took part."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runwatch.clock import Clock, system_clock
from runwatch.compat.goodput.goodput_utils import GCPOptions
from runwatch.compat.goodput.monitor.monitor import _DEFAULT_OPTIONS, GoodputMonitor

if TYPE_CHECKING:
    from runwatch.compat.goodput.calculator.calculator import GoodputCalculator


class ElasticGoodputMonitor(GoodputMonitor):
    def __init__(
        self,
        job_name: str,
        logger_name: str,
        tensorboard_dir: str,
        upload_interval: int = 30,
        monitoring_enabled: bool = False,
        include_badput_breakdown: bool = False,
        include_step_deviation: bool = False,
        include_slice_efficiency: bool = False,
        configured_ideal_step_time: float | None = None,
        step_deviation_interval_seconds: int = 10,
        gcp_options: GCPOptions = _DEFAULT_OPTIONS,
        skip_final_flush: bool = False,
        final_flush_timeout_seconds: float | None = 10,
        gcs_sync_interval_seconds: int = 3600,
        cache_dir: str = "/tmp",
        max_logs_retention_period: timedelta | None = None,
        *,
        cloud_logger: Any = None,
        metrics_client: Any = None,
        include_account: bool | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """As `GoodputMonitor`; `include_slice_efficiency` uploads the shares of the slices that
        were stepping and that were available."""
        self._include_slice_efficiency = bool(include_slice_efficiency)
        super().__init__(
            job_name,
            logger_name,
            tensorboard_dir,
            upload_interval,
            monitoring_enabled,
            True,
            include_badput_breakdown,
            include_step_deviation,
            configured_ideal_step_time,
            step_deviation_interval_seconds,
            gcp_options,
            skip_final_flush,
            final_flush_timeout_seconds,
            gcs_sync_interval_seconds,
            cache_dir,
            max_logs_retention_period,
            cloud_logger=cloud_logger,
            metrics_client=metrics_client,
            include_account=include_account,
            clock=clock,
        )

    @staticmethod
    def _make_calculator(**arguments: Any) -> GoodputCalculator:
        from runwatch.compat.goodput.calculator.elastic import ElasticGoodputCalculator

        return ElasticGoodputCalculator(**arguments)
