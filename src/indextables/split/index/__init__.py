"""The Tantivy index of a split: encoding of values, building, packing, and the disk cache."""
