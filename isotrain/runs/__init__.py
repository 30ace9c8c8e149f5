"""Files of a run: its folder, record, metrics and their keys, predictions, snapshots.

Apps read runs through this folder. No torch; what is written is free of secrets.
"""
