"""What a configuration may say, judged before anything is loaded. No torch.

`schema.py` types, `compose.py` composes and hashes, `rules.py` judges facts across keys,
`command.py` and `sweep.py` judge a command line.
"""
