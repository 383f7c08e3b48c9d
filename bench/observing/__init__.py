"""How much `bolide trace` and `bolide profile` delay the requests of others."""
