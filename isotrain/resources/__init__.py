"""Data files of the package: BibTeX references and the demo's lexicon."""
