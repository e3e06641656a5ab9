"""An assessment: load once, check once, prepare once, then measure, read and write."""
