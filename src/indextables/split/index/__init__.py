"""The index of a split: what is indexed and how, built, packed, cached."""
