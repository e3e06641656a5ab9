"""The only loop that measures, and what it keeps."""
