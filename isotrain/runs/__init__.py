"""What a run leaves on disk: keys of metrics, files, records, snapshots, secrets. No torch.

Apps read runs through this folder.
"""
