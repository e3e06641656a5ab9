"""What is handed to others: safety cases, model cards, technical documentation."""
