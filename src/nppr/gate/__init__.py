"""Requirements, and whether a classifier meets them."""
