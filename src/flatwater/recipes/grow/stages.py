"""The stages of a slot's life as they are drawn: a name and a colour each, in the order of their numbers."""

STAGES = {
    "dormant": "#e2e8f0",
    "germinated": "#bef264",
    "training": "#facc15",
    "blending": "#38bdf8",
    "holding": "#2563eb",
    "fossilised": "#312e81",
    "pruned": "#dc2626",
    "embargoed": "#fca5a5",
    "resetting": "#fecaca",
}
