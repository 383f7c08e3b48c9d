"""Requests in gevent's greenlets: Bolide beside the other servers that run them."""
