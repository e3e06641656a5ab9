"""The only loop that measures, and the counts it stores."""
