"""Isotropy of every layer, and isotropy layers, in a script that imports `lightning.pytorch`."""

from lightning.pytorch import Callback

from isotrain.plugins.fit_hooks import FitHooks
from isotrain.training.monitor.hooks import MonitorHooks


class IsotropyMonitor(MonitorHooks, Callback):
    __doc__ = MonitorHooks.__doc__


class FitLayers(FitHooks, Callback):
    __doc__ = FitHooks.__doc__
