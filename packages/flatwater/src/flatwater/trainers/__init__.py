"""The trainers, and the loop that they share."""
