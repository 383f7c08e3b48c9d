"""Workers that serve in gevent's greenlets, and the functions of the server that greenlets wait in."""
