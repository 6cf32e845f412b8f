"""The commands about prices, orders and studies."""
