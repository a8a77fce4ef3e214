"""The figures of The Shaped Transformer (arXiv 2306.17759) and others beyond it.

`original` and `beyond` simulate the data, `plots` draws them, `catalogue` lists them by name.
"""
