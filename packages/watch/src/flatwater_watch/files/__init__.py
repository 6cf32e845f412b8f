"""Files of anybody's making: read without harm, written whole or not at all."""
