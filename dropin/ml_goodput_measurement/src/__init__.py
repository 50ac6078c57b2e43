"""Where the original keeps its modules; `ml_goodput_measurement.src.goodput` is found beside us."""

import ml_goodput_measurement

__path__ = ml_goodput_measurement.__path__
