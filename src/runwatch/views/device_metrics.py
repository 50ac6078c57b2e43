"""What agents sample of accelerators: each metric's name, unit, words and meaning.

A collector yields samples under these names.  `/api/v1/devices/metrics` serves the table, and
`make types` writes it for the page.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class DeviceMetric(NamedTuple):
    name: str
    unit: str
    words: str
    meaning: str


DEVICE_METRICS: Final = (
    DeviceMetric(
        "gpu_utilization_percent", "%", "busy",
        "Share of the time in which at least one kernel ran. A kernel on one of many cores counts.",
    ),
    DeviceMetric(
        "gpu_sm_activity_percent", "%", "cores active",
        "Share of the cores (SMs) that had work, averaged over the time.",
    ),
    DeviceMetric(
        "gpu_sm_occupancy_percent", "%", "core occupancy",
        "How full the cores were of threads, of what they could hold.",
    ),
    DeviceMetric(
        "gpu_tensor_activity_percent", "%", "tensor cores",
        "Share of the time in which the tensor cores worked: the nearest to real use in training.",
    ),
    DeviceMetric(
        "gpu_dram_bandwidth_percent", "%", "memory bandwidth",
        "Share of the device memory's bandwidth that was used.",
    ),
    DeviceMetric(
        "gpu_dram_bytes_per_second", "B/s", "memory traffic",
        "Bytes read from and written to the device's own memory.",
    ),
    DeviceMetric("gpu_memory_used_bytes", "B", "memory used", "Device memory in use, by anybody."),
    DeviceMetric("gpu_memory_total_bytes", "B", "memory", "Device memory that there is."),
    DeviceMetric(
        "gpu_memory_used_percent", "%", "memory used",
        "Share of the device memory in use, where only the share is told.",
    ),
    DeviceMetric("gpu_power_watts", "W", "power", "Power that the board draws."),
    DeviceMetric(
        "gpu_power_limit_watts", "W", "power limit", "Power above which the board slows down."
    ),
    DeviceMetric(
        "gpu_energy_joules_total", "J", "energy", "Energy since the driver was loaded; a counter."
    ),
    DeviceMetric("gpu_temperature_celsius", "°C", "temperature", "Temperature of the chip."),
    DeviceMetric(
        "gpu_memory_temperature_celsius", "°C", "memory temperature", "Temperature of its memory."
    ),
    DeviceMetric("gpu_sm_clock_hz", "Hz", "core clock", "Clock of the cores."),
    DeviceMetric("gpu_memory_clock_hz", "Hz", "memory clock", "Clock of the memory."),
    DeviceMetric(
        "gpu_throttle_reasons", "", "clock limits",
        "Why clocks are held down, as the driver's bits.",
    ),
    DeviceMetric(
        "gpu_throttled_power", "", "power cap", "1 while the power limit holds clocks down."
    ),
    DeviceMetric("gpu_throttled_thermal", "", "too hot", "1 while heat holds clocks down."),
    DeviceMetric(
        "gpu_throttled_hardware", "", "hardware slowdown", "1 while the board itself slows down."
    ),
    DeviceMetric(
        "gpu_pcie_tx_bytes_per_second", "B/s", "PCIe out", "Bytes that it sent over the bus."
    ),
    DeviceMetric(
        "gpu_pcie_rx_bytes_per_second", "B/s", "PCIe in",
        "Bytes that it received over the bus.",
    ),
    DeviceMetric(
        "gpu_nvlink_tx_bytes_per_second", "B/s", "NVLink out", "Bytes sent over all NVLinks."
    ),
    DeviceMetric(
        "gpu_nvlink_rx_bytes_per_second", "B/s", "NVLink in", "Bytes received over all NVLinks."
    ),
    DeviceMetric(
        "gpu_ecc_errors_total", "", "memory errors",
        "Errors that the memory's check bits found; label `errors`: corrected, uncorrected.",
    ),
    DeviceMetric(
        "gpu_remapped_rows_total", "", "replaced rows",
        "Memory rows replaced by spare ones; label `errors`: what made them go.",
    ),
    DeviceMetric(
        "gpu_remapping_pending", "", "row waits", "1 while a bad row waits for a reset."
    ),
    DeviceMetric(
        "gpu_remapping_failed", "", "no spare rows", "1 if a bad row could not be replaced."
    ),
    DeviceMetric(
        "gpu_process_memory_bytes", "B", "memory of a process",
        "Device memory that one process holds; label `pid`.",
    ),
    DeviceMetric(
        "gpu_process_utilization_percent", "%", "busy for a process",
        "Share of the cores' time that one process of a shared device had; label `pid`.",
    ),
    DeviceMetric(
        "tpu_duty_cycle_percent", "%", "busy", "Share of the time in which the chip worked."
    ),
    DeviceMetric(
        "tpu_tensorcore_utilization_percent", "%", "tensor cores",
        "Share of its peak at which the TensorCore computed.",
    ),
    DeviceMetric("tpu_hbm_used_bytes", "B", "memory used", "Device memory in use."),
    DeviceMetric("tpu_hbm_total_bytes", "B", "memory", "Device memory that there is."),
)  # fmt: skip
