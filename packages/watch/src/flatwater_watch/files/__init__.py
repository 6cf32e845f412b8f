"""Files from any source: read without harm, written whole or not at all."""
