"""The pictures of a report, drawn by matplotlib: one function a picture, each returns the Axes it drew on.

import advisor
import advisor.plot as plot

report = advisor.analyze(advisor.load("trace.json.gz"), pictures=True)
plot.timeline(report)

Give `ax` to draw into a figure of your own. Needs the extra `notebook` (matplotlib). `savings`, `step_bars` and `ranks` draw any
report; the others need one made with `pictures=True`, and raise NothingToDraw, with the reason, where nothing was recorded.
"""

from advisor.plot.kernels import kernels, roofline
from advisor.plot.over_time import memory, samples, timeline
from advisor.plot.parts import ranks, savings, step_bars
from advisor.plot.style import NothingToDraw

__all__ = ["NothingToDraw", "kernels", "memory", "ranks", "roofline", "samples", "savings", "step_bars", "timeline"]
