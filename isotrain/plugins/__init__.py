"""isotrain's layers, losses and monitor inside other trainers. `docs/plugins.md` has examples."""
