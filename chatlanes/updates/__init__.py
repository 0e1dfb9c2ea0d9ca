"""An update: where things are in it, which lanes it joins, and how it is appended."""
