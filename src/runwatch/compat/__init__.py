"""The five tools that Runwatch replaces: their names and rules, over Runwatch's own objects.

| here | the original |
|---|---|
| `goodput/` | ml-goodput-measurement |
| `mldiagnostics/` | google-cloud-mldiagnostics |
| `tpu_diagnostics/` | cloud-tpu-diagnostics |
| `gswarm/` | gswarm-profiler's command `gsprof` |
| `xprofiler/` | cloud-diagnostics-xprof's commands `xprofiler` and `mltrace` |

Inside each package, the modules have the names that the original gives them.  Programs that should
stay unmodified install `runwatch-dropin`, which is import tables over this room.  Nothing below
this room imports it.
"""
