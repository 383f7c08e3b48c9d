"""h2spec against Bolide: ``make h2spec``."""
