// `make types` writes this file.

export const CLASSES: Readonly<Record<string, { words: string; meaning: string; light: string; dark: string }>> = {
  "productive": {
    "words": "productive steps",
    "meaning": "Training steps whose work was kept.",
    "light": "#2f9e6e",
    "dark": "#3fb582"
  },
  "program_startup": {
    "words": "program startup",
    "meaning": "From the start of the processes to their first sign of training: imports, compilation.",
    "light": "#8fb8d9",
    "dark": "#5f8fb5"
  },
  "accelerator_init": {
    "words": "accelerator initialisation",
    "meaning": "Waiting for the accelerators to come up.",
    "light": "#a9c7a0",
    "dark": "#7d9f74"
  },
  "training_preparation": {
    "words": "training preparation",
    "meaning": "Building the model, the data pipeline and all else before the first step.",
    "light": "#5b9bd1",
    "dark": "#4a86ba"
  },
  "data_loading": {
    "words": "waiting for data",
    "meaning": "The ranks waited for the next batch: the input pipeline did not keep up.",
    "light": "#e8a33d",
    "dark": "#dd9a3a"
  },
  "checkpoint_save": {
    "words": "saving checkpoints",
    "meaning": "Training stood still while a checkpoint was written.",
    "light": "#7a5ea8",
    "dark": "#9a7fcb"
  },
  "checkpoint_restore": {
    "words": "restoring checkpoints",
    "meaning": "Reading the checkpoint to go on from.",
    "light": "#a58bce",
    "dark": "#7c63ab"
  },
  "evaluation": {
    "words": "evaluation",
    "meaning": "Evaluation between training steps.",
    "light": "#3fa7b5",
    "dark": "#3b98a6"
  },
  "wasted_progress": {
    "words": "wasted progress",
    "meaning": "Steps that had to be done again, because the run stopped before a checkpoint kept them.",
    "light": "#c8453b",
    "dark": "#e0665b"
  },
  "infrastructure_recovery": {
    "words": "infrastructure recovery",
    "meaning": "Nothing ran: from the end of one attempt to the start of the next.",
    "light": "#7d8592",
    "dark": "#8b93a1"
  },
  "scheduling_wait": {
    "words": "waiting to be scheduled",
    "meaning": "The run waited for machines: it was in a queue, or a pod that it needs had no node.",
    "light": "#2b45b5",
    "dark": "#5468e8"
  },
  "pod_startup": {
    "words": "image pulls and pod start",
    "meaning": "All pods had nodes; images, volumes and init containers of one were waited for.",
    "light": "#7f8ce8",
    "dark": "#a9b4ff"
  },
  "stall": {
    "words": "hang or stall",
    "meaning": "A step took far longer than usual and nothing says why: some rank or device stood still.",
    "light": "#d4237a",
    "dark": "#e8549b"
  },
  "slow_steps": {
    "words": "slow steps",
    "meaning": "What steps took longer than usual, though the run went on.",
    "light": "#e596ba",
    "dark": "#b04a7d"
  },
  "degraded_capacity": {
    "words": "degraded capacity",
    "meaning": "The share of the working time that missing ranks of an elastic job would have had.",
    "light": "#b3a445",
    "dark": "#c7b85c"
  },
  "excluded": {
    "words": "excluded",
    "meaning": "Left out of the account on request; no share is made of it.",
    "light": "#d9dce1",
    "dark": "#3d434d"
  },
  "elastic_slice_down": {
    "words": "elastic: slices down",
    "meaning": "Waiting after slices were lost.",
    "light": "#b5793a",
    "dark": "#c98c4b"
  },
  "elastic_scale_up": {
    "words": "elastic: scaling up",
    "meaning": "Waiting for slices to come back.",
    "light": "#c99a62",
    "dark": "#a97840"
  },
  "elastic_reinitialization": {
    "words": "elastic re-initialisation",
    "meaning": "Setting training up for a changed number of slices.",
    "light": "#97682f",
    "dark": "#dba25e"
  },
  "unattributed": {
    "words": "unattributed",
    "meaning": "No record says what this time went into.",
    "light": "#c3c8d0",
    "dark": "#565d69"
  }
};

/** The class that a span of this name is counted in. */
export const SPAN_CLASSES: Readonly<Record<string, string>> = {
  "compile": "program_startup",
  "accelerator_init": "accelerator_init",
  "training_preparation": "training_preparation",
  "data_loading": "data_loading",
  "checkpoint_save": "checkpoint_save",
  "checkpoint_restore": "checkpoint_restore",
  "evaluation": "evaluation",
  "elastic_slice_down": "elastic_slice_down",
  "elastic_scale_up": "elastic_scale_up",
  "elastic_reinitialization": "elastic_reinitialization"
};

export const DEVICE_METRICS: Readonly<Record<string, string>> = {
  "gpu_utilization_percent": "Share of the time in which at least one kernel ran. A kernel on one of many cores counts.",
  "gpu_sm_activity_percent": "Share of the cores (SMs) that had work, averaged over the time.",
  "gpu_sm_occupancy_percent": "How full the cores were of threads, of what they could hold.",
  "gpu_tensor_activity_percent": "Share of the time in which the tensor cores worked: the nearest to real use in training.",
  "gpu_dram_bandwidth_percent": "Share of the device memory's bandwidth that was used.",
  "gpu_dram_bytes_per_second": "Bytes read from and written to the device's own memory.",
  "gpu_memory_used_bytes": "Device memory in use, by anybody.",
  "gpu_memory_total_bytes": "Device memory that there is.",
  "gpu_memory_used_percent": "Share of the device memory in use, where only the share is told.",
  "gpu_power_watts": "Power that the board draws.",
  "gpu_power_limit_watts": "Power above which the board slows down.",
  "gpu_energy_joules_total": "Energy since the driver was loaded; a counter.",
  "gpu_temperature_celsius": "Temperature of the chip.",
  "gpu_memory_temperature_celsius": "Temperature of its memory.",
  "gpu_sm_clock_hz": "Clock of the cores.",
  "gpu_memory_clock_hz": "Clock of the memory.",
  "gpu_throttle_reasons": "Why clocks are held down, as the driver's bits.",
  "gpu_throttled_power": "1 while the power limit holds clocks down.",
  "gpu_throttled_thermal": "1 while heat holds clocks down.",
  "gpu_throttled_hardware": "1 while the board itself slows down.",
  "gpu_pcie_tx_bytes_per_second": "Bytes that it sent over the bus.",
  "gpu_pcie_rx_bytes_per_second": "Bytes that it received over the bus.",
  "gpu_nvlink_tx_bytes_per_second": "Bytes sent over all NVLinks.",
  "gpu_nvlink_rx_bytes_per_second": "Bytes received over all NVLinks.",
  "gpu_ecc_errors_total": "Errors that the memory's check bits found; label `errors`: corrected, uncorrected.",
  "gpu_remapped_rows_total": "Memory rows replaced by spare ones; label `errors`: what made them go.",
  "gpu_remapping_pending": "1 while a bad row waits for a reset.",
  "gpu_remapping_failed": "1 if a bad row could not be replaced.",
  "gpu_process_memory_bytes": "Device memory that one process holds; label `pid`.",
  "gpu_process_utilization_percent": "Share of the cores' time that one process of a shared device had; label `pid`.",
  "tpu_duty_cycle_percent": "Share of the time in which the chip worked.",
  "tpu_tensorcore_utilization_percent": "Share of its peak at which the TensorCore computed.",
  "tpu_hbm_used_bytes": "Device memory in use.",
  "tpu_hbm_total_bytes": "Device memory that there is."
};

export const CAPTURE_LIMITS = {
  "defaultMs": 2000,
  "maxMs": 600000,
  "maxSteps": 10000
} as const;
