"""gevent's own server, without a log: ``python pywsgi_server.py PORT``."""

import sys

from gevent import monkey

monkey.patch_all()

from gevent.pywsgi import WSGIServer  # noqa: E402
from views import application  # noqa: E402

WSGIServer(("127.0.0.1", int(sys.argv[1])), application, log=None, backlog=4096).serve_forever()
