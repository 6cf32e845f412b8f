"""What happens, as events: told to whoever listens, and to the user's own command."""
