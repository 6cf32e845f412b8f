"""The market as [time, instrument, feature]: import, indicators, store, splits, normalisation."""
