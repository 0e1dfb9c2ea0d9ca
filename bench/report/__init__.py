"""The results: tables, pictures, and the figures in the documentation."""
