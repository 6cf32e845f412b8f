"""The trainers, and the one loop they share."""
