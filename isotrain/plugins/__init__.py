"""isotrain's layers, losses and monitor inside other trainers. `docs/plugins.md` has examples."""

import importlib
import sys
from types import ModuleType

PACKAGES = {"lightning.pytorch": "lightning", "pytorch_lightning": "pytorch_lightning"}


def lightning_callbacks() -> ModuleType:
    """The module with the callbacks for the imported Lightning package.

    If none is imported, it is that of `pytorch_lightning`, which isotrain's runs use.

    Raises:
        ImportError: both packages are imported, so the Trainer's package is ambiguous.
    """
    names = [name for package, name in PACKAGES.items() if package in sys.modules]
    if len(names) > 1:
        raise ImportError(
            "lightning and pytorch_lightning are both imported, and a callback should be of the "
            "Trainer's package; import from isotrain.plugins.lightning or from "
            "isotrain.plugins.pytorch_lightning"
        )
    return importlib.import_module(f"isotrain.plugins.{(names or ['pytorch_lightning'])[0]}")
