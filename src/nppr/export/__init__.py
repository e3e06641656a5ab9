"""Documents for assessors: safety cases, model cards, technical documentation."""
