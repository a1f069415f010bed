"""EAGLE-2 trees: growth, selection, flattening, masks, paths and links."""
