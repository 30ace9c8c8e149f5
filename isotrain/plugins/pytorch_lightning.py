"""Isotropy of every layer, and isotropy layers, in a script that imports `pytorch_lightning`."""

from pytorch_lightning import Callback

from isotrain.plugins.fit_hooks import FitHooks
from isotrain.training.monitor.hooks import MonitorHooks


class IsotropyMonitor(MonitorHooks, Callback):
    """`isotrain.training.monitor.hooks.MonitorHooks` as a callback."""


class FitLayers(FitHooks, Callback):
    """`isotrain.plugins.fit_hooks.FitHooks` as a callback."""


IsotropyMonitor.__doc__, FitLayers.__doc__ = MonitorHooks.__doc__, FitHooks.__doc__
