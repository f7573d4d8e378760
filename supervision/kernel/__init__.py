"""The rows, and the only code that writes them."""
