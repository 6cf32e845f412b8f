"""What grows, who holds it, which line made it, and what to do."""
