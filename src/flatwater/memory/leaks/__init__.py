"""What grows, who holds it, where it was made, and what to do: monitor, census, origin, verdict."""
