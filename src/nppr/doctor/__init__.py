"""The doctor: checks of a run, the flags they raise, and the grade that results."""
